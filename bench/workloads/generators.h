#pragma once

#include <cstdint>

namespace cistern {

class TraceSink;

// The generators behind workloads(): see each one's source file for what it allocates and why.
void generate_gpt2_training(std::uint64_t seed, TraceSink& sink);
void generate_gpt2_checkpointed_training(std::uint64_t seed, TraceSink& sink);
void generate_llama_serving(std::uint64_t seed, TraceSink& sink);
void generate_detection_training(std::uint64_t seed, TraceSink& sink);
void generate_dataframe_streams(std::uint64_t seed, TraceSink& sink);
void generate_small_operations(std::uint64_t seed, TraceSink& sink);
void generate_sawtooth(std::uint64_t seed, TraceSink& sink);

}  // namespace cistern
