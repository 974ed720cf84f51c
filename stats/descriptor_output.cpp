#include "stats/descriptor_output.h"

#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace cistern {

bool write_all(int descriptor, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

std::streamsize DescriptorOutput::xsputn(const char* text, std::streamsize bytes) {
  if (error_ != 0) return 0;
  if (write_all(descriptor_, {text, static_cast<std::size_t>(bytes)})) return bytes;
  error_ = errno == 0 ? EIO : errno;
  return 0;
}

DescriptorOutput::int_type DescriptorOutput::overflow(int_type character) {
  if (traits_type::eq_int_type(character, traits_type::eof())) return traits_type::not_eof(character);
  const char text = traits_type::to_char_type(character);
  return xsputn(&text, 1) == 1 ? character : traits_type::eof();
}

}  // namespace cistern
