#include "stats/symbolizer.h"

#include "stats/elf_file.h"

#include <cxxabi.h>
#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string>

namespace cistern {
namespace {

// A file that the process runs.
struct Module {
  std::string path;
  std::string build_id;
  std::uint64_t base = 0;  // added to the file's addresses
  struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  std::vector<Range> code;
};

std::string own_path() {
  std::array<char, 4096> path{};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  return length <= 0 ? "" : std::string(path.data(), static_cast<std::size_t>(length));
}

// Whether the part lies in memory that was loaded to be read: a note need not.
bool is_loaded(const dl_phdr_info& info, const ElfW(Phdr) & part) {
  for (unsigned i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& loaded = info.dlpi_phdr[i];
    if (loaded.p_type == PT_LOAD && (loaded.p_flags & PF_R) != 0 && part.p_vaddr >= loaded.p_vaddr &&
        part.p_vaddr - loaded.p_vaddr <= loaded.p_memsz &&
        part.p_memsz <= loaded.p_memsz - (part.p_vaddr - loaded.p_vaddr))
      return true;
  }
  return false;
}

int add_module(dl_phdr_info* info, std::size_t, void* all) {
  auto& modules = *static_cast<std::vector<Module>*>(all);
  try {
    Module module;
    module.base = info->dlpi_addr;
    // The first is the program itself, and has no name.
    module.path = modules.empty() ? own_path() : std::string(info->dlpi_name);
    for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
      const ElfW(Phdr)& part = info->dlpi_phdr[i];
      const std::uint64_t begin = module.base + part.p_vaddr;
      if (part.p_type == PT_LOAD && (part.p_flags & PF_X) != 0) module.code.push_back({begin, begin + part.p_memsz});
      if (part.p_type == PT_NOTE && module.build_id.empty() && is_loaded(*info, part))
        module.build_id = build_id_of({reinterpret_cast<const char*>(begin), part.p_memsz});
    }
    modules.push_back(std::move(module));
    return 0;
  } catch (...) {  // never through the loader's frames
    return 1;
  }
}

std::vector<Module> loaded_modules() {
  std::vector<Module> modules;
  if (dl_iterate_phdr(add_module, &modules) != 0) throw std::bad_alloc();
  return modules;
}

std::string demangled(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status),
                                                    std::free);
  return text == nullptr ? mangled : std::string(text.get());
}

// The file itself, if it is still the one that runs, and the one its symbols were put into.
std::vector<ElfFile> files_of(const Module& module) {
  std::vector<ElfFile> files;
  const auto add = [&](ElfFile file) {
    file.load();
    files.push_back(std::move(file));
  };
  const auto add_if_built_together = [&](const std::string& path) {
    ElfFile file(path);
    if (file.is_of_build(module.build_id)) add(std::move(file));
  };
  if (module.build_id.empty()) {
    // What is mapped is still that file. Nothing tells whether another one belongs to it.
    auto file = std::make_unique<OpenFile>(module.path);
    if (file->identity().has_value() && file->identity() == mapped_file_at(module.code.front().begin))
      add(ElfFile(std::move(file)));
    return files;
  }
  add_if_built_together(module.path);
  if (module.build_id.size() > 2)
    add_if_built_together(
        fmt::format("/usr/lib/debug/.build-id/{}/{}.debug", module.build_id.substr(0, 2), module.build_id.substr(2)));
  if (!files.empty() && !files[0].debug_link().empty()) {
    const std::string folder = module.path.substr(0, module.path.rfind('/') + 1);
    const std::string link = files[0].debug_link();
    add_if_built_together(folder + link);
    add_if_built_together(folder + ".debug/" + link);
  }
  return files;
}

// Return addresses lie behind the call: one before is inside it.
void describe(const Module& module, int index, std::span<const std::uintptr_t> addresses, Symbols& symbols) {
  std::vector<SourceLine> lines;
  for (const std::uintptr_t address : addresses) lines.push_back({address - module.base - 1, "", 0});
  const std::vector<ElfFile> files = files_of(module);
  for (const ElfFile& file : files) find_source_lines(file.lines(), lines);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    FrameInfo& frame = symbols.frames[addresses[i]];
    frame.address = addresses[i];
    frame.module = index;
    frame.offset = addresses[i] - module.base;
    frame.filename = std::move(lines[i].file);
    frame.line = lines[i].line;
    for (const ElfFile& file : files) {
      if (!frame.name.empty()) break;
      if (const std::string name = file.function_at(frame.offset - 1); !name.empty()) frame.name = demangled(name);
    }
    if (frame.name.empty())
      frame.name = fmt::format("{}+{:#x}", module.path.substr(module.path.rfind('/') + 1), frame.offset);
  }
}

}  // namespace

Symbols symbolize(std::span<const std::uintptr_t> addresses) {
  if (addresses.empty()) return {};  // for nothing the lock of the loader is not to be waited for
  std::vector<std::uintptr_t> sorted(addresses.begin(), addresses.end());
  std::sort(sorted.begin(), sorted.end());
  Symbols symbols;
  for (const Module& module : loaded_modules()) {
    const int index = static_cast<int>(symbols.modules.size());
    bool used = false;
    for (const Module::Range& code : module.code) {
      const auto first = std::upper_bound(sorted.begin(), sorted.end(), code.begin);
      const auto last = std::upper_bound(first, sorted.end(), code.end);
      if (first == last) continue;
      describe(module, index, {first, last}, symbols);
      used = true;
    }
    if (used) symbols.modules.push_back({module.path, module.build_id});
  }
  return symbols;
}

}  // namespace cistern
