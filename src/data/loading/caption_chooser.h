#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/base/random.h>
#include <tessera/data/loading/caption_view.h>
#include <tessera/data/sample.h>

namespace tessera {

/// Whether a text is neither blank nor malformed UTF-8.
bool is_usable(const std::string& text);

/// Makes the K captions of a sample as data.loader.captions describes. Fields are looked up by name; `captions` means the list of the
/// sample's captions, unless the sample has a text field of that name. If the settings name no fields, sentences come from all text fields
/// of the sample, or from its captions if it has no text fields; the choices `all` and `random` use the sample's captions. Texts that are
/// blank or not UTF-8 are ignored. Thread-safe.
class CaptionChooser {
 public:
  explicit CaptionChooser(const CaptionViewSettings& settings);

  /// Returns whether the sample has a usable text for a caption.
  bool has_any(const Sample& sample) const { return !usable_fields(sample).empty(); }
  /// Returns whether the sample has malformed UTF-8 in any text that its captions could come from.
  bool has_undecodable(const Sample& sample) const;
  /// Returns K captions. An empty text means that there is no caption.
  std::vector<std::string> choose(const Sample& sample, Random random) const;
  /// Returns a text for messages that lists the fields of captions, such as "raw_caption and captions". If the settings do not name all of
  /// these fields, returns "any text field or caption".
  std::string describe_fields() const;

 private:
  std::vector<TextField> unnamed_fields(const Sample& sample) const;
  std::vector<TextField> fields_of(const Sample& sample) const;
  std::vector<TextField> usable_fields(const Sample& sample) const;
  std::vector<std::string> names_for(const Sample& sample) const;

  CaptionViewSettings settings_;
  std::vector<std::string> named_;  // names of all fields that occur in the settings
  bool uses_unnamed_;               // whether some captions come from fields that the settings do not name
};

}  // namespace tessera
