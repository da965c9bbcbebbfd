#include "tools/bench/parse_shape.h"

#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::bench {

std::vector<std::int64_t> parse_shape(const std::string& text, std::size_t dimensions, const char* option,
                                      const char* example) {
  std::vector<std::int64_t> out;
  for (const std::string& part : split(text, 'x')) {
    const bool digits = !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
    out.push_back(digits ? std::stoll(part) : 0);
  }
  bool good = out.size() == dimensions;
  for (const std::int64_t size : out) good = good && size > 0;
  if (!good) user_error(option, " ", text, ": expected sizes of at least 1 such as ", example);
  return out;
}

}  // namespace tessera::bench
