#pragma once

#include <string>

#include <tessera/batch.h>
#include <tessera/config/fields.h>

namespace tessera {

/// Whether contrasts of images with texts have hard negatives beside the batch's texts: those of the view `negatives`.
struct NegativeTextSettings {
  std::string hard_negatives = "none";

  /// Whether there are any.
  bool any() const { return hard_negatives != "none"; }
  /// Adds the view, which samples may lack.
  void add_needs(Needs& needs) const;
};

template <class Visitor>
void fields(Visitor& v, NegativeTextSettings& s) {
  v("hard_negatives", s.hard_negatives,
    "texts of the view `negatives` (data.loader.negatives) that images are compared with too; texts are not. own: each image "
    "with its own ones; all: with those of the whole batch (NegCLIP)",
    config::one_of({"none", "own", "all"}));
}

}  // namespace tessera
