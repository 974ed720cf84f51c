#pragma once

// Objects of the whole program that own device memory, made before main by who does not know of the heap.

namespace cistern::life {

// Gives them memory; they free it after main, each in its destructor.
void fill_static_objects();

}  // namespace cistern::life
