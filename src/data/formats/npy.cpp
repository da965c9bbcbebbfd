#include "src/data/formats/npy.h"

#include "src/base/printable.h"
#include <tessera/base/text.h>

namespace tessera {
namespace {

// Returns the value of `key` (given with its quotes) in the header's Python dictionary. A list or tuple comes without its last bracket.
std::string_view npy_value(std::string_view header, std::string_view key) {
  const std::size_t at = header.find(key), colon = header.find(':', at);
  if (at == std::string_view::npos) throw BadNpy("its header lacks " + std::string(key));
  if (colon == std::string_view::npos) throw BadNpy("its header is cut");
  const std::string_view text = strip(header.substr(colon + 1));
  const std::size_t stop = text.find(text.starts_with('(') ? ')' : text.starts_with('[') ? ']' : ',');
  if (stop == std::string_view::npos) throw BadNpy("its header is cut");
  return strip(text.substr(0, stop));
}

std::vector<std::int64_t> parse_npy_shape(std::string_view text) {
  if (text.starts_with('(')) text.remove_prefix(1);
  std::vector<std::int64_t> shape;
  for (const std::string& each : split(text, ',')) {
    const std::string number(strip(each));
    if (number.empty()) continue;
    if (number.size() > 12 || number.find_first_not_of("0123456789") != std::string::npos)
      throw BadNpy("its shape is (" + printable(text, 60) + ")");
    shape.push_back(std::stoll(number));
  }
  return shape;
}

}  // namespace

std::string_view NpyFile::elements(std::size_t bytes) const {
  std::size_t room = data.size() / bytes, count = 1;
  for (const std::int64_t length : shape) {
    if (length != 0 && count > room / static_cast<std::size_t>(length)) throw BadNpy("it is cut off");
    count *= static_cast<std::size_t>(length);
  }
  return data.substr(0, count * bytes);
}

NpyFile parse_npy(std::string_view file) {
  if (file.size() < 12 || !file.starts_with("\x93NUMPY")) throw BadNpy("it does not start like one");
  const std::size_t prefix = file[6] >= 2 ? 12 : 10;
  std::size_t length = 0;
  for (std::size_t i = prefix; i > 8; --i) length = length << 8 | static_cast<std::uint8_t>(file[i - 1]);
  if (length > file.size() - prefix) throw BadNpy("its header is cut");
  const std::string_view header = file.substr(prefix, length);
  if (npy_value(header, "'fortran_order'") != "False") throw BadNpy("it is in Fortran order");
  return {parse_npy_shape(npy_value(header, "'shape'")), npy_value(header, "'descr'"), file.substr(prefix + length)};
}

}  // namespace tessera
