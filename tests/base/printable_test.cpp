#include <gtest/gtest.h>

#include "src/base/printable.h"

namespace tessera {
namespace {

TEST(Printable, KeepsReadableText) {
  EXPECT_EQ(printable("caf\xC3\xA9 \"quoted\" \\n"), "caf\xC3\xA9 \"quoted\" \\n");
}

TEST(Printable, EscapesControlsAndReplacesBrokenBytes) {
  EXPECT_EQ(printable(std::string("a\nb\t\r\x07\x7F\0", 8)), "a\\nb\\t\\r\\u0007\\u007f\\u0000");
  EXPECT_EQ(printable("a\xFFz"), "a\xEF\xBF\xBDz");
}

TEST(Printable, CutsLongTextBetweenCharacters) {
  EXPECT_EQ(printable("abcdefgh", 8), "abcdefgh");
  EXPECT_EQ(printable("abcdefghi", 8), "abcde...");
  EXPECT_EQ(printable("abcd\xC3\xA9xyz", 8), "abcd...") << "the fifth byte starts a two-byte character";
}

}  // namespace
}  // namespace tessera
