#include "tests/index/brute_force.h"
#include "tests/index/temporary_index.h"
#include <tessera/io/atomic_file.h>

namespace tessera::index {
namespace {

class Damage : public IndexTest {
 protected:
  void SetUp() override {
    build_index(folder_, random_vectors({.rows = 130, .vocab_size = 70}, 1),
                {.names = TokenNames(names(), "test"), .window = 64, .threads = 1});
    const std::vector<std::string> ids = {"d5"};
    remove_documents(folder_, ids);
  }
  static std::string names() {
    std::string lines;
    for (int t = 0; t < 70; ++t) lines += "token" + std::to_string(t) + "\n";
    return lines;
  }
  /// Replaces the content of `file` by `bytes`, opens the index, and restores the file. Returns the error of opening, or "no error".
  std::string opened_with(const std::string& file, const std::string& bytes) const {
    const std::string original = io::read_file(path(file));
    write(file, bytes);
    std::string message = error_of([&] { Index opened(folder_, 1); });
    write(file, original);
    return message;
  }
};

TEST_F(Damage, AnyChangedByteOfAnyFileIsReportedInOneLine) {
  for (const std::string file : {"manifest.json", "segment-000002", "vocabulary-000001.txt"}) {
    const std::string bytes = io::read_file(path(file));
    std::int64_t unnoticed = 0;
    for (std::size_t i = 0; i < bytes.size(); i += file == "segment-000002" ? 3 : 1) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ (1 << (i % 8)));
      const std::string message = opened_with(file, changed);
      if (message == "no error") {
        // Sections are padded with zeros to the next multiple of 64 bytes, and nothing reads the padding.
        EXPECT_EQ(bytes[i], 0) << file << ", byte " << i;
        ++unnoticed;
        continue;
      }
      EXPECT_TRUE(message.starts_with(folder_)) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    }
    EXPECT_LT(unnoticed, 64 * 5) << file;
  }
}

TEST_F(Damage, FilesCutShortOrLengthenedAreErrors) {
  for (const std::string file : {"manifest.json", "segment-000002", "vocabulary-000001.txt"}) {
    const std::string bytes = io::read_file(path(file));
    for (std::size_t size = 0; size < bytes.size(); size += 1 + bytes.size() / 200)
      EXPECT_NE(opened_with(file, bytes.substr(0, size)), "no error") << file << ", " << size << " bytes";
    EXPECT_NE(opened_with(file, bytes + "x"), "no error") << file;
  }
}

TEST_F(Damage, ASegmentOfAnotherIndexIsRefused) {
  build_index(path("other"), random_vectors({.rows = 130, .vocab_size = 70}, 2),
              {.names = TokenNames(names(), "test"), .window = 64, .threads = 1});
  const std::string other = io::read_file(path("other") + "/segment-000002");
  EXPECT_NE(opened_with("segment-000002", other), "no error");
}

TEST_F(Damage, MissingFilesAreReported) {
  EXPECT_EQ(error_of([&] { Index opened(path("nowhere")); }),
            path("nowhere") + ": there is no index (no manifest.json); tessera-index build makes one");
  std::filesystem::remove(path("segment-000002"));
  EXPECT_EQ(error_of([&] { Index opened(folder_); }),
            path("segment-000002") + ": cannot read: No such file or directory");
}

TEST_F(Damage, ADamagedIndexCanBeOverwritten) {
  write("manifest.json", "nonsense");
  EXPECT_NE(error_of([&] { Index opened(folder_); }), "no error");
  build_index(folder_, random_vectors({.rows = 3, .vocab_size = 70}, 3), {.overwrite = true});
  EXPECT_EQ(Index(folder_).documents(), 3);
}

}  // namespace
}  // namespace tessera::index
