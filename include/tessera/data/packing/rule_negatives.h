#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/base/random.h>
#include <tessera/data/sample.h>

namespace tessera {

/// Makes hard negatives of captions by rules, for data sets that have none: words of one class change places (NegCLIP,
/// Yuksekgonul et al. 2023) or give way to others (CREPE, Ma et al. 2023). The kinds are SugarCrepe's:
///   swap_att     two attributes of one class that have more between them than joining words and attributes ("a red car and a
///                blue bus", but not "a red and blue bus")
///   swap_obj     two nouns of which an attribute or a relation says something ("a cat on a dog", "a black cat and a dog", but
///                not "a cat and a dog", which is the same swapped)
///   replace_att  an attribute by another of its class
///   replace_obj  a noun by another of its class, singular by singular, plural by plural
///   replace_rel  a relation or an activity by another of its class
/// `a` and `an`, capitals and punctuation follow. Rules know words, not pictures: a negative may happen to be true.
/// Thread-safe.
class NegativeRules {
 public:
  /// lexicon: lines `KIND CLASS: words`, of the kinds att, obj and rel. `|` stands between words that exclude each other, `,`
  /// between those that do not (`att size: small, tiny | large, big`); a noun's plural stands behind a slash where it is no
  /// regular one (`man/men`). Lines that begin with # are remarks. Throws UserError naming `origin` and the line.
  NegativeRules(std::string_view lexicon, const std::string& origin);
  ~NegativeRules();

  /// At most `each` of every kind, in the order above, none twice and none equal to the caption.
  std::vector<HardNegative> make(const std::string& caption, std::int64_t each, Random& random) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

/// The lexicon that is used where none is given.
std::string_view default_negative_lexicon();

}  // namespace tessera
