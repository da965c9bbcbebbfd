#include <algorithm>

#include "src/report/natural_order.h"

namespace tessera::report {

bool NaturalOrder::operator()(std::string_view a, std::string_view b) const {
  const auto digits = [](std::string_view text) {
    std::size_t count = 0;
    while (count < text.size() && text[count] >= '0' && text[count] <= '9') ++count;
    return count;
  };
  const std::string_view whole_a = a, whole_b = b;
  while (!a.empty() && !b.empty()) {
    const std::size_t of_a = digits(a), of_b = digits(b);
    if (of_a > 0 && of_b > 0 && of_a != of_b) return of_a < of_b;
    const std::size_t length = std::max<std::size_t>(1, std::min(of_a, of_b));
    if (const int order = a.substr(0, length).compare(b.substr(0, length)); order != 0) return order < 0;
    a.remove_prefix(length);
    b.remove_prefix(length);
  }
  return a.empty() != b.empty() ? a.empty() : whole_a < whole_b;
}

}  // namespace tessera::report
