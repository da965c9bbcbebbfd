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
  v("count", s.count, "H, hard negatives per image, chosen at random in each epoch; an image with fewer lacks the others",
    config::in_range(1, 1000));
  v("kinds", s.kinds,
    "kinds of hard negatives that are taken, as in [replace_att, swap_att]; the others are left for the evaluation; empty: all");
}

/// Which boxes of objects image views come with, and how many texts the views `phrases` and `phrase_negatives` hold.
struct BoxViewSettings {
  std::int64_t count = 4;
  std::int64_t negatives = 0;
  double least_visible = 0.5;
};

template <class Visitor>
void fields(Visitor& v, BoxViewSettings& s) {
  v("count", s.count,
    "R, boxes per image, chosen at random in each epoch among the objects that have a phrase and are in sight; an image "
    "with fewer lacks the others",
    config::in_range(1, 1000));
  v("negatives", s.negatives,
    "hard negatives of each box's phrase, chosen at random; a phrase with fewer lacks the others; 0: there is no view "
    "`phrase_negatives`",
    config::in_range(0, 1000));
  v("least_visible", s.least_visible,
    "share of its area that a crop must leave of a box; one of which less is left is masked, and its texts are absent",
    config::in_range(0, 1));
}

}  // namespace tessera
