#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/data/sources/option_set.h"
#include <tessera/data/image/transforms.h>

namespace tessera {

/// Collects the items of a benchmark and their images. An image used by several items is stored once.
class OptionBuilder {
 public:
  explicit OptionBuilder(const OptionSettings& settings) : settings_(settings) {}

  /// Returns the index of an image, or of a part of it, and adds it if it is new.
  std::int64_t picture(const std::string& name, const std::optional<Box>& part = {});
  /// Adds an item. An item with a blank text is skipped. `place` is the item's place in the file, for messages. Throws UserError if
  /// the item does not have a known form, or has another form than the earlier items.
  void add(OptionItem item, const std::string& place);
  /// Returns the path of the lexicon that the layout needs. Throws UserError if none is set.
  const std::string& lexicon() const;
  /// Counts a skipped item.
  void skip(const std::string& reason) { ++set_.skipped[reason]; }
  /// Declares that each item has two correct texts (SugarCrepe++).
  void expect_paraphrases() { set_.form = OptionForm::paraphrase; }

  /// Returns the set. `files` are the annotation files. Throws UserError if there are no items.
  OptionSet finished(const std::vector<std::string>& files) &&;

 private:
  void take_form(const OptionItem& item, const std::string& place);

  const OptionSettings& settings_;
  OptionSet set_;
  std::vector<std::string> files_;               // the file of each image
  std::vector<std::optional<Box>> parts_;        // the part of the file that each image shows; null: the whole file
  std::map<std::string, std::int64_t> numbers_;  // indices of images, by name and part
};

}  // namespace tessera
