#pragma once

#include <string>

#include <tessera/batch.h>
#include <tessera/config/fields.h>

namespace tessera {

/// Chooses the hard negatives, which are texts of the view `negatives`. Images are compared with them in addition to the batch's texts.
struct NegativeTextSettings {
  std::string hard_negatives = "none";

  /// Returns true if hard negatives are used.
  bool any() const { return hard_negatives != "none"; }
  /// Adds the view `negatives` to the needs, as an optional view.
  void add_needs(Needs& needs) const;
};

void fields(auto& v, NegativeTextSettings& s) {
  v("hard_negatives", s.hard_negatives,
    "which texts of the view `negatives` (data.loader.negatives) an image is also compared with; none; own: the image's own "
    "negatives; all: the negatives of the whole batch (NegCLIP)",
    config::one_of({"none", "own", "all"}));
}

}  // namespace tessera
