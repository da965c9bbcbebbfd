#include <gtest/gtest.h>

#include "src/data/tokenizers/caption_cleanup.h"

namespace tessera {
namespace {

// Expected texts are Python's: str.lower() then str.translate() in transformers' SiglipTokenizer, the other order in OpenCLIP.
TEST(CaptionCleanup, SiglipLowersBeforeItRemovesPunctuation) {
  EXPECT_EQ(cleaned_caption("ΟΔΟΣ-ΑΒ", "siglip"), "οδοςαβ") << "the sigma ends a word while the hyphen is there";
  EXPECT_EQ(cleaned_caption("ΟΔΟΣ-ΑΒ", "canonicalize"), "οδοσαβ");
  EXPECT_EQ(cleaned_caption("  Two_dogs,\tRUNNING! ", "siglip"), "twodogs running");
  EXPECT_EQ(cleaned_caption("  Two_dogs,\tRUNNING! ", "canonicalize"), "two dogs running");
}

TEST(CaptionCleanup, KeepsCaseOrPunctuationWhereItIsAskedTo) {
  EXPECT_EQ(cleaned_caption(" A  &amp; B! ", "whitespace"), "A & B!");
  EXPECT_EQ(cleaned_caption(" A  &amp; B! ", "lower"), "a & b!");
  EXPECT_EQ(cleaned_caption(" A  &amp; B! ", "none"), " A  &amp; B! ");
}

}  // namespace
}  // namespace tessera
