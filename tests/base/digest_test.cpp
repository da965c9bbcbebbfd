#include <set>

#include <gtest/gtest.h>

#include "src/base/digest.h"
#include "src/base/md5.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

TEST(Sha256, MatchesTheExamplesOfTheStandard) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Md5, MatchesTheExamplesOfTheStandard) {
  EXPECT_EQ(md5(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(md5("abc"), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(md5("12345678901234567890123456789012345678901234567890123456789012345678901234567890"), "57edf4a22be3c955ac49da2e2107b67a");
  EXPECT_EQ(md5(std::string(1000000, 'a')), "7707d6ae4e027c70eea2a935c2296f21");
}

TEST(Crc32, MatchesTheCheckValuesOfTheCatalog) {
  EXPECT_EQ(crc32("123456789"), 0xCBF43926U);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32("The quick brown fox jumps over the lazy dog"), 0x414FA339U);
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(Base64, MatchesTheExamplesOfTheStandardAndDecodesBackEqual) {
  EXPECT_EQ(base64_encode("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64_encode("fooba"), "Zm9vYmE=");
  EXPECT_EQ(base64_encode("foob"), "Zm9vYg==");
  for (std::size_t size : {0, 1, 2, 3, 255, 256}) {
    std::string bytes;
    for (std::size_t i = 0; i < size; ++i) bytes += static_cast<char>(i * 7);
    EXPECT_EQ(base64_decode(base64_encode(bytes)), bytes);
  }
}

TEST(Fingerprint, DiffersWithBytesLengthAndSeed) {
  std::set<std::uint64_t> seen;
  std::string bytes;
  for (int length = 0; length < 20; ++length, bytes += '\0') {
    EXPECT_TRUE(seen.insert(fingerprint(bytes)).second) << length;
    EXPECT_TRUE(seen.insert(fingerprint(bytes, 1)).second) << length;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      std::string other = bytes;
      other[i] = 1;
      EXPECT_TRUE(seen.insert(fingerprint(other)).second) << length << " " << i;
    }
  }
  EXPECT_EQ(fingerprint("a picture"), fingerprint(std::string("a ") + "picture"));
}

TEST(Base64, RefusesTextThatIsNotBase64) {
  EXPECT_THROW(base64_decode("abc"), UserError);
  EXPECT_THROW(base64_decode("ab!d"), UserError);
  EXPECT_THROW(base64_decode("=abc"), UserError);
}

}  // namespace
}  // namespace tessera
