#include <gtest/gtest.h>

#include "src/data/tokenizers/caption_cleanup.h"

namespace tessera {
namespace {

// The expected texts are from Python: transformers' SiglipTokenizer calls str.lower() and then str.translate(), and OpenCLIP calls them in
// the other order.
TEST(CaptionCleanup, SiglipLowercasesBeforeItRemovesPunctuation) {
  EXPECT_EQ(cleaned_caption("ΟΔΟΣ-ΑΒ", "siglip"), "οδοςαβ") << "the sigma is at the end of a word until the hyphen is removed";
  EXPECT_EQ(cleaned_caption("ΟΔΟΣ-ΑΒ", "canonicalize"), "οδοσαβ");
  EXPECT_EQ(cleaned_caption("  Two_dogs,\tRUNNING! ", "siglip"), "twodogs running");
  EXPECT_EQ(cleaned_caption("  Two_dogs,\tRUNNING! ", "canonicalize"), "two dogs running");
}

TEST(CaptionCleanup, KeepsCaseOrPunctuationIfSet) {
  EXPECT_EQ(cleaned_caption(" A  &amp; B! ", "whitespace"), "A & B!");
  EXPECT_EQ(cleaned_caption(" A  &amp; B! ", "lower"), "a & b!");
  EXPECT_EQ(cleaned_caption(" A  &amp; B! ", "none"), " A  &amp; B! ");
}

}  // namespace
}  // namespace tessera
