#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/config/fields.h>

namespace tessera {

/// Which texts the view `negatives` holds, and how many per image.
struct NegativeViewSettings {
  std::int64_t count = 1;
  std::vector<std::string> kinds;
};

template <class Visitor>
void fields(Visitor& v, NegativeViewSettings& s) {
  v("count", s.count, "number H of hard negatives per image, chosen at random in each epoch; if an image has fewer, the rest are absent",
    config::in_range(1, config::kMostCount));
  v("kinds", s.kinds,
    "kinds of hard negatives to use, as in [replace_att, swap_att]; the others are left for evaluation; empty: all");
}

/// Settings of the object boxes that accompany image views, and of the texts in the views `phrases` and `phrase_negatives`.
struct BoxViewSettings {
  std::int64_t count = 4;
  std::int64_t negatives = 0;
  double least_visible = 0.5;
};

template <class Visitor>
void fields(Visitor& v, BoxViewSettings& s) {
  v("count", s.count,
    "number R of boxes per image, chosen at random in each epoch among the objects that have a phrase and are visible; if an image has "
    "fewer, the rest are absent",
    config::in_range(1, config::kMostCount));
  v("negatives", s.negatives,
    "hard negatives per box phrase, chosen at random; if a phrase has fewer, the rest are absent; 0: there is no view "
    "`phrase_negatives`",
    config::in_range(0, config::kMostCount));
  v("least_visible", s.least_visible,
    "minimum share of a box's area inside the crop; if less is inside, the box is masked and its texts are absent",
    config::in_range(0, 1));
}

}  // namespace tessera
