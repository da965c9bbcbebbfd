#include "src/data/tokenizers/json/characters.h"

#include <gtest/gtest.h>

#include "src/data/tokenizers/normalization.h"
#include "tests/data/tokenizers/golden.h"
#include <tessera/io/atomic_file.h>

namespace tessera::json_tokenizer {
namespace {

using nlohmann::json;

TEST(Characters, AsciiClassesAreThoseOfTheTable) {
  for (char32_t code = 0; code < 0x80; ++code) EXPECT_EQ(ascii_classes[code], class_of_wide(code)) << static_cast<std::uint32_t>(code);
}

/// Checks that exactly the code points in the golden file's ranges have one of the classes.
void expect_class(const json& golden, const char* name, std::uint16_t classes, char32_t but_first = 1, char32_t but_last = 0) {
  std::vector<bool> members(unicode::code_points);
  for (const json& range : golden.at(name))
    for (std::size_t code = range[0]; code <= range[1].get<std::size_t>(); ++code) members[code] = true;
  for (char32_t code = 0; code < unicode::code_points; ++code)
    if (code < but_first || code > but_last) {
      ASSERT_EQ((class_of(code) & classes) != 0, members[code]) << name << " " << static_cast<std::uint32_t>(code);
    }
}

json golden_classes(const std::string& name) {
  return json::parse(io::read_file(test_data("golden/tokenizers/" + name + "_classes.json")));
}

TEST(Characters, ClassesAreThoseOfTheReferenceTokenizers) {
  const json clip = golden_classes("clip"), bert = golden_classes("bert");
  expect_class(clip, "letter", letter | newer_letter);
  expect_class(clip, "number", number | newer_number);
  expect_class(clip, "space", white_space, 0x1C, 0x1F);  // only Python counts these control characters
  expect_class(clip, "sigma_cased", cased);
  expect_class(clip, "sigma_ignorable", ignorable);
  expect_class(bert, "removed", control);
  expect_class(bert, "mark", mark);
  expect_class(bert, "punctuation", punctuation);
}

TEST(Normalization, LeavesCharactersThatTheReferenceDoesNotKnow) {
  using unicode::Form, unicode::Version;
  // U+11938 (Unicode 13) is U+11935 with the mark U+11930. U+1E08F (Unicode 15) is a mark above; U+0323 is a mark below.
  EXPECT_EQ(unicode::normal_form(U"\U00011935\U00011930", Form::nfc, Version::unicode14), U"\U00011938");
  EXPECT_EQ(unicode::normal_form(U"\U00011935\U00011930", Form::nfc, Version::hugging_face), U"\U00011935\U00011930");
  EXPECT_EQ(unicode::compose(U"a\U0001E08F\u0323"), U"a\U0001E08F\u0323") << "the newer mark is a border";
  EXPECT_EQ(unicode::compose(U"a\u0301\u0323"), U"\u1EA1\u0301");
  EXPECT_EQ(unicode::normal_form(U"\uFB01\u00C5", Form::nfkd, Version::hugging_face), U"fiA\u030A");
}

// Only the characters that may change, and the one before each group of them, are normalized.
TEST(Normalization, ComposesEachGroupOfMarksWithTheCharacterBeforeIt) {
  EXPECT_EQ(unicode::compose(U"ae\u0301bo\u0302\u0323c"), U"a\u00E9b\u1ED9c");
  EXPECT_EQ(unicode::compose(U"e\u0301o\u0302"), U"\u00E9\u00F4") << "two groups without a character between them";
  EXPECT_EQ(unicode::compose(U"\u0301e"), U"\u0301e") << "a mark without a base";
  EXPECT_EQ(unicode::compose(U"x\u1100\u1161\u11A8"), U"x\uAC01") << "a Hangul syllable";
  EXPECT_EQ(unicode::compose(U""), U"");
}

TEST(Normalization, DecompositionsOfSingleCharactersAreTheirNormalForms) {
  std::size_t count = 0;
  for (char32_t code = 0; code < unicode::code_points; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    const std::u32string one(1, code), normal = unicode::normal_form(one, unicode::Form::nfd, unicode::Version::hugging_face);
    const std::u32string_view parts = unicode::decomposition(code);
    ASSERT_EQ(normal, parts.empty() ? one : std::u32string(parts)) << static_cast<std::uint32_t>(code);
    count += parts.empty() ? 0 : 1;
  }
  EXPECT_EQ(count, 13'232U) << "2,060 characters and 11,172 Hangul syllables";
}

}  // namespace
}  // namespace tessera::json_tokenizer
