#include "src/data/tokenizers/caption_cleanup.h"

#include <gtest/gtest.h>

#include "src/data/tokenizers/fix_encoding.h"
#include "src/data/tokenizers/unicode.h"

#include "tests/support/test_name.h"

namespace tessera {
namespace {

std::string fixed(const std::string& text, Cleanup level) {
  return unicode::encode(fix_text(unicode::decode(text), level));
}

// Returns the UTF-8 text after it was misread as Latin-1 `times` times in a row.
std::string misread(std::string text, int times = 1) {
  for (; times > 0; --times) {
    std::u32string out;
    for (const char c : text) out += static_cast<char32_t>(static_cast<std::uint8_t>(c));
    text = unicode::encode(out);
  }
  return text;
}

struct Repair {
  const char* name;
  const char* damaged;
  const char* mojibake;
  const char* full;
};
void PrintTo(const Repair& repair, std::ostream* out) {
  *out << repair.name;
}

class FixText : public testing::TestWithParam<Repair> {};

// The expected texts are from ftfy 6.3.1. For the level `full` it considered all encodings that it knows, for the level `mojibake` only two
// of them.
TEST_P(FixText, RepairsTheEncodingsOfItsLevel) {
  const Repair& repair = GetParam();
  EXPECT_EQ(fixed(repair.damaged, Cleanup::mojibake), repair.mojibake);
  EXPECT_EQ(fixed(repair.damaged, Cleanup::full), repair.full);
}

INSTANTIATE_TEST_SUITE_P(
    Ftfy, FixText,
    testing::Values(
        // ftfy straightens the quotes after the repair
        Repair{"a whole caption", "It\u00E2\u20AC\u2122s a caf\u00C3\u00A9", "It's a caf\u00E9", "It's a caf\u00E9"},
        Repair{"next to characters outside one-byte encodings", "\u4E2D\u6587 caf\u00C3\u00A9 \u2713",
               "\u4E2D\u6587 caf\u00E9 \u2713", "\u4E2D\u6587 caf\u00E9 \u2713"},
        Repair{"damaged twice", "caf\u00C3\u0192\u00C2\u00A9", "caf\u00E9", "caf\u00E9"},
        Repair{"not damaged", "\u00C5ngstr\u00F6m na\u00EFve \u00A9 2020", "\u00C5ngstr\u00F6m na\u00EFve \u00A9 2020",
               "\u00C5ngstr\u00F6m na\u00EFve \u00A9 2020"},
        // one of the damaged letters is part of a word, and the other is a word by itself
        Repair{"byte A0 that became a space", "d\u00C3\u00A9j\u00C3 vu \u00C3 la mode", "d\u00E9j\u00C3 vu \u00C3 la mode",
               "d\u00E9j\u00E0 vu \u00E0 la mode"},
        Repair{"Windows-1251", "\u0420\u0457\u0421\u0402\u0420\u0451\u0420\u0406\u0420\u00B5\u0421\u201A",
               "\u0420\u0457\u0421\u0402\u0420\u0451\u0420\u0406\u0420\u00B5\u0421'",
               "\u043F\u0440\u0438\u0432\u0435\u0442"},
        Repair{"MacRoman", "caf\u221A\u00A9", "caf\u221A\u00A9", "caf\u00E9"},
        Repair{"a lost byte", "\u00E2\u20AC\u0153like this\u00E2\u20AC\uFFFD", "\"like this\u00E2\u20AC\uFFFD",
               "\"like this\uFFFD"}),
    test_name<Repair>);

TEST(FixText, Cesu8AndJavasNullAreDecoded) {
  EXPECT_EQ(fixed(misread("x \xED\xA0\xBD\xED\xB8\x80"), Cleanup::full), "x \U0001F600");
  EXPECT_EQ(fixed(misread("caf\xC3\xA9 \xC0\x80"), Cleanup::full), "caf\u00E9 ");
}

TEST(FixText, LowerLevelsDoNotRepairEncodings) {
  EXPECT_EQ(fixed("caf\u00C3\u00A9 \uFB01", Cleanup::none), "caf\u00C3\u00A9 \uFB01");
  EXPECT_EQ(fixed("caf\u00C3\u00A9 \uFB01", Cleanup::basic), "caf\u00C3\u00A9 fi");
}

TEST(FixText, ComposesCharactersAsNfcDoes) {
  const std::pair<const char*, const char*> cases[] = {
      {"e\u0301", "\u00E9"},               // a letter and a combining mark
      {"\u1100\u1161\u11A8", "\uAC01"},    // jamo
      {"\u212B", "\u00C5"},                // a second code point for the same letter
      {"x\u0301\u0323", "x\u0323\u0301"},  // combining marks are sorted by their class
      {"\u09C7\u09BE", "\u09CB"},          // composed although the second character has combining class 0
      {"\u0958", "\u0915\u093C"}};         // decomposed and, as an exception, not composed again
  for (const auto& [text, composed] : cases) EXPECT_EQ(fixed(text, Cleanup::basic), composed);
}

TEST(FixText, ManyLayersAreRepaired) {
  EXPECT_EQ(fixed(misread("\u00E9t\u00E9 \u4E2D", 6), Cleanup::full), "\u00E9t\u00E9 \u4E2D");
}

TEST(FixText, LongTextsAreRepairedInReasonableTime) {
  for (const char* unit : {"\u00C3\u00A9", "\u00C3 ", "\u00E2\u20AC", "\u00C3", "\uFFFD\u00E2", "\u0440\u045F",
                           "\u00BF\u00C3\u00A9 \u4E2D"}) {
    std::string text;
    while (text.size() < 50'000) text += unit;
    for (const Cleanup level : {Cleanup::mojibake, Cleanup::full}) EXPECT_LE(fixed(text, level).size(), text.size());
  }
}

// The cases cover each kind of step in the pattern of bad sequences: a class of characters, two classes, an optional space, the start of
// the text, and any character.
TEST(Mojibake, BadSequencesAreFound) {
  for (const std::u32string_view bad : {U"\u0085", U"\u00A6\u00AC", U"a\u00C3 ", U"a \u00C3 ", U"\u00C3 x",
                                        U"\u0413\u045E\u0412\u0402\u0412\u4E2D ", U"x\u2039\u00E2\u00C2\u00BBz"})
    EXPECT_TRUE(mojibake::is_bad(bad)) << unicode::encode(bad);
  for (const std::u32string_view good :
       {U"", U"abc", U"\u00C3", U"A \u00C3 x", U"\u0413\u045E\u0412\u0402\u0412\n ", U"\u00E9t\u00E9 \u00A9 2020"})
    EXPECT_FALSE(mojibake::is_bad(good)) << unicode::encode(good);
}

}  // namespace
}  // namespace tessera
