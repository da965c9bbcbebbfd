#include "src/data/tokenizers/normalization.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include <unicode/normalizer2.h>
#include <unicode/uniset.h>

#include <tessera/base/error.h>

namespace tessera::unicode {
namespace {

void check(UErrorCode status, const char* what) {
  if (U_FAILURE(status) != 0) user_error("ICU cannot ", what, ": ", u_errorName(status), "; Tessera needs ICU 70 or newer with its data");
}

icu::UnicodeSet characters_in(const char* pattern) {
  UErrorCode status = U_ZERO_ERROR;
  icu::UnicodeSet out(icu::UnicodeString::fromUTF8(pattern), status);
  check(status, "list characters");
  out.freeze();
  return out;
}

const icu::Normalizer2& whole_normalizer(Form form) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* found = form == Form::nfc    ? icu::Normalizer2::getNFCInstance(status)
                                  : form == Form::nfd  ? icu::Normalizer2::getNFDInstance(status)
                                  : form == Form::nfkc ? icu::Normalizer2::getNFKCInstance(status)
                                                       : icu::Normalizer2::getNFKDInstance(status);
  check(status, "normalize texts");
  return *found;
}

const icu::Normalizer2& normalizer(Form form, Version version) {
  static const icu::UnicodeSet of_python = characters_in("[:age=14.0:]"), of_rust = characters_in("[:age=9.0:]");
  static const auto all = [] {
    std::map<std::pair<Form, Version>, std::unique_ptr<const icu::Normalizer2>> out;
    for (const Form each : {Form::nfc, Form::nfd, Form::nfkc, Form::nfkd})
      for (const auto& [known, set] : {std::pair{Version::unicode14, &of_python}, {Version::hugging_face, &of_rust}})
        out.emplace(std::pair{each, known}, std::make_unique<icu::FilteredNormalizer2>(whole_normalizer(each), *set));
    return out;
  }();
  return *all.at({form, version});
}

void append_normal(std::u32string_view text, const icu::Normalizer2& rule, std::u32string& out) {
  const auto length = static_cast<std::int32_t>(text.size());
  const icu::UnicodeString given = icu::UnicodeString::fromUTF32(reinterpret_cast<const UChar32*>(text.data()), length);
  UErrorCode status = U_ZERO_ERROR;
  const icu::UnicodeString normal = rule.normalize(given, status);
  const std::size_t before = out.size();
  out.resize(before + static_cast<std::size_t>(normal.length()));
  const std::int32_t count = normal.toUTF32(reinterpret_cast<UChar32*>(out.data() + before), normal.length(), status);
  check(status, "normalize a text");
  out.resize(before + static_cast<std::size_t>(count));
}

std::uint8_t bit_of(Form form) {
  return static_cast<std::uint8_t>(1U << static_cast<unsigned>(form));
}

}  // namespace

std::u32string normal_form(std::u32string_view text, Form form, Version version) {
  const icu::Normalizer2* rule = nullptr;
  std::u32string out;
  out.reserve(text.size());
  std::size_t done = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!may_change(text[i], form)) continue;
    const std::size_t begin = std::max(done, i - std::min<std::size_t>(i, 1));  // the character before may absorb this one
    while (i < text.size() && may_change(text[i], form)) ++i;
    if (rule == nullptr) rule = &normalizer(form, version);
    out.append(text, done, begin - done);
    append_normal(text.substr(begin, i - begin), *rule, out);
    done = i;
  }
  return out.append(text, done);
}

std::u32string compose(std::u32string_view text) {
  return normal_form(text, Form::nfc, Version::unicode14);
}

std::u32string_view decomposition(char32_t code) {
  struct Decompositions {
    PageTable<std::uint32_t> places;  // 8 times the position in `codes`, plus the length; 0 if there is no decomposition
    std::u32string codes;
  };
  static const Decompositions all = [] {
    Decompositions out;
    const icu::UnicodeSet set = characters_in("[:NFD_QC=No:]");
    for (std::int32_t i = 0; i < set.getRangeCount(); ++i)
      for (UChar32 each = set.getRangeStart(i); each <= set.getRangeEnd(i); ++each) {
        const std::u32string one(1, static_cast<char32_t>(each)), normal = normal_form(one, Form::nfd, Version::hugging_face);
        if (normal == one) continue;
        out.places.at(one[0]) = static_cast<std::uint32_t>(out.codes.size() << 3 | normal.size());
        out.codes += normal;
      }
    return out;
  }();
  const std::uint32_t place = all.places[code];
  return std::u32string_view(all.codes).substr(place >> 3, place & 7);
}

void mark_changing(PageTable<std::uint8_t>& table, Form form, std::uint8_t bit) {
  constexpr std::array<const char*, 4> patterns = {"[[:^NFC_QC=Yes:][:^ccc=0:]]", "[[:^NFD_QC=Yes:][:^ccc=0:]]",
                                                   "[[:^NFKC_QC=Yes:][:^ccc=0:]]", "[[:^NFKD_QC=Yes:][:^ccc=0:]]"};  // in the order of Form
  const icu::UnicodeSet set = characters_in(patterns[static_cast<std::size_t>(form)]);
  for (std::int32_t i = 0; i < set.getRangeCount(); ++i)
    for (UChar32 code = set.getRangeStart(i); code <= set.getRangeEnd(i); ++code) table.at(static_cast<char32_t>(code)) |= bit;
}

bool may_change(char32_t code, Form form) {
  static const PageTable<std::uint8_t> table = [] {
    PageTable<std::uint8_t> out;
    for (const Form each : {Form::nfc, Form::nfd, Form::nfkc, Form::nfkd}) mark_changing(out, each, bit_of(each));
    return out;
  }();
  return (table[code] & bit_of(form)) != 0;
}

}  // namespace tessera::unicode
