#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/base/random.h>
#include <tessera/sample.h>

namespace tessera {

/// Makes hard negatives of captions by rules, for data sets that have none: words of one class are swapped (NegCLIP,
/// Yuksekgonul et al. 2023) or replaced (CREPE, Ma et al. 2023). The kinds are SugarCrepe's:
///   swap_att     swaps two attributes of one class ("a red car and a blue bus"), unless only attributes, articles, `and`, `or` and `with`
///                stand between the two ("a red and blue bus")
///   swap_obj     swaps two nouns ("a cat on a dog", "a black cat and a dog"), unless the first noun has no attribute and only articles,
///                `and`, `or` and `with` stand between the two ("a cat and a dog", which means the same when swapped)
///   replace_att  replaces an attribute by another of its class
///   replace_obj  replaces a noun by another of its class, singular by singular, plural by plural
///   replace_rel  replaces a relation or an activity by another of its class
/// `a` and `an`, capitals and punctuation are adjusted. The rules do not see the image: a negative may happen to be true.
/// Thread-safe.
class NegativeRules {
 public:
  /// `lexicon` has lines `KIND CLASS: words`, where KIND is att, obj or rel. `|` separates groups of words, and `,` separates the words of
  /// a group (`att size: small, tiny | large, big`). Words of different groups exclude each other. An irregular plural of a noun follows a
  /// slash (`man/men`). Lines that start with # are comments. Throws UserError naming `origin` and the line.
  NegativeRules(std::string_view lexicon, const std::string& origin);
  ~NegativeRules();

  /// Returns at most `each` negatives of every kind, in the order of the kinds in the description of this class. The negatives differ from
  /// each other and from the caption.
  std::vector<HardNegative> make(const std::string& caption, std::int64_t each, Random& random) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

/// Returns the default lexicon.
std::string_view default_negative_lexicon();

}  // namespace tessera
