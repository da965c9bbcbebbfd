#pragma once

#include <string_view>

namespace tessera::report {

/// Orders names by the numbers in them: recall@1, recall@5, recall@10.
struct NaturalOrder {
  bool operator()(std::string_view a, std::string_view b) const;
};

}  // namespace tessera::report
