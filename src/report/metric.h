#pragma once

#include <string>
#include <string_view>

namespace tessera::report {

/// Whether the metric of this name is a share in [0, 1], shown as a percentage.
bool is_share(const std::string& metric);

enum class Better { higher, lower, neither };

/// Returns `higher` if larger values of a metric are better, `lower` if smaller values are better, and `neither` for a metric that only
/// describes the model or the data, such as a baseline or a number that was measured on the training data.
Better better_value(const std::string& metric);

/// Orders names by the numbers in them: recall@1, recall@5, recall@10.
struct NaturalOrder {
  bool operator()(std::string_view a, std::string_view b) const;
};

}  // namespace tessera::report
