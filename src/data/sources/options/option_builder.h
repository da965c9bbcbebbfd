#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <tessera/data/image/transforms.h>
#include <tessera/data/sources/option_set.h>

namespace tessera {

/// Collects pictures, each once, and the items that ask about them.
class OptionBuilder {
 public:
  explicit OptionBuilder(const OptionSettings& settings) : settings_(settings) {}

  /// The number of a picture, or of a part of it.
  std::int64_t picture(const std::string& name, const std::optional<Box>& part = {});
  /// `place` is where the item stands, for messages. An item with a blank text is left out. Throws UserError for one that
  /// is of no form, or of another than those before.
  void add(OptionItem item, const std::string& place);
  /// The lexicon that the layout needs. Throws UserError if none is set.
  const std::string& lexicon() const;
  /// Counts an item that the benchmark itself leaves out.
  void skip(const std::string& reason) { ++set_.skipped[reason]; }
  /// The items have two right texts each (SugarCrepe++).
  void expect_paraphrases() { set_.form = OptionForm::paraphrase; }

  /// `files`: the annotations. Throws UserError if there are no items.
  OptionSet finished(const std::vector<std::string>& files) &&;

 private:
  void take_form(const OptionItem& item, const std::string& place);

  const OptionSettings& settings_;
  OptionSet set_;
  std::vector<std::string> files_;               // of the pictures
  std::vector<std::optional<Box>> parts_;        // likewise
  std::map<std::string, std::int64_t> numbers_;  // of pictures, by name and part
};

}  // namespace tessera
