// Tests the shard indices that are cached between runs.

#include "src/data/sources/webdataset/shards.h"

#include <chrono>
#include <filesystem>
#include <sys/stat.h>
#include <thread>

#include <gtest/gtest.h>

#include "src/data/sources/webdataset/webdataset.h"
#include "src/io/tar.h"
#include "tests/data/fake_source.h"
#include "tests/data/temporary_folder.h"
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

class IndexCaches : public FolderTest {
 protected:
  // Writes a shard and sets its modification time to an hour ago.
  std::string shard(const std::string& name, const std::vector<std::string>& members) const {
    fs::create_directories(fs::path(path(name)).parent_path());
    io::TarWriter tar(path(name));
    for (const std::string& member : members) tar.add(member, "content of " + member);
    tar.finish();
    age(name, 3600);
    return path(name);
  }

  void age(const std::string& name, int seconds) const {
    fs::last_write_time(path(name), fs::file_time_type::clock::now() - std::chrono::seconds(seconds));
  }

  // Damages a shard's first header but keeps its size and modification time, so that indexing the shard again would fail.
  void hide_headers(const std::string& name) const {
    const auto time = fs::last_write_time(path(name));
    std::string bytes = io::read_file(path(name));
    bytes[0] = static_cast<char>(bytes[0] ^ 1);
    write(name, bytes);
    fs::last_write_time(path(name), time);
  }
};

std::vector<std::string> names_of(const io::TarIndex& index) {
  std::vector<std::string> names;
  for (const io::TarMember& member : index.members)
    names.push_back(member.name + "@" + std::to_string(member.offset) + "+" + std::to_string(member.size));
  return names;
}

TEST_F(IndexCaches, ASecondRunDoesNotReadTheHeaders) {
  const std::string tar = shard("a.tar", {"x.txt", "y.txt"});
  const auto first = names_of(IndexCache("beside").index(tar));
  ASSERT_TRUE(fs::exists(tar + ".index"));
  hide_headers("a.tar");
  EXPECT_EQ(names_of(IndexCache("beside").index(tar)), first);
  EXPECT_EQ(first, (std::vector<std::string>{"x.txt@512+16", "y.txt@1536+16"}));
  EXPECT_THROW(IndexCache("off").index(tar), UserError) << "without the cache the damaged header must fail";
}

TEST_F(IndexCaches, AChangedShardIsReadAgain) {
  const std::string tar = shard("a.tar", {"x.txt", "y.txt"});
  IndexCache("beside").index(tar);
  shard("a.tar", {"p.txt", "q.txt"});  // has the same size as before
  age("a.tar", 1800);
  EXPECT_EQ(names_of(IndexCache("beside").index(tar)), (std::vector<std::string>{"p.txt@512+16", "q.txt@1536+16"}));
  const auto time = fs::last_write_time(tar);
  shard("a.tar", {"p.txt", "q.txt", "r.txt"});
  fs::last_write_time(tar, time);
  EXPECT_EQ(IndexCache("beside").index(tar).members.size(), 3U);
}

TEST_F(IndexCaches, ADamagedIndexIsRebuilt) {
  const std::string tar = shard("a.tar", {"x.txt"});
  const auto first = names_of(IndexCache("beside").index(tar));
  const std::string whole = io::read_file(tar + ".index");
  std::string other_version = whole;
  other_version[18] = '9';
  for (std::size_t at = 0; at < whole.size(); at += 7) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    write("a.tar.index", damaged);
    ASSERT_EQ(names_of(IndexCache("beside").index(tar)), first) << at;
    write("a.tar.index", whole.substr(0, at));
    ASSERT_EQ(names_of(IndexCache("beside").index(tar)), first) << at;
  }
  write("a.tar.index", other_version);
  IndexCache("beside").index(tar);
  EXPECT_EQ(io::read_file(tar + ".index"), whole);
}

TEST_F(IndexCaches, ARecentlyWrittenShardIsNotCached) {
  const std::string tar = shard("a.tar", {"x.txt"});
  age("a.tar", 0);
  IndexCache("beside").index(tar);
  EXPECT_FALSE(fs::exists(tar + ".index"));
}

TEST_F(IndexCaches, ACacheFolderSeparatesShardsWithTheSameName) {
  const std::string a = shard("p/a.tar", {"x.txt"}), b = shard("q/a.tar", {"y.txt"});
  const IndexCache cache(path("cache/deep"));
  cache.index(a);
  cache.index(b);
  EXPECT_EQ(std::distance(fs::directory_iterator(path("cache/deep")), fs::directory_iterator()), 2);
  EXPECT_FALSE(fs::exists(a + ".index"));
  hide_headers("p/a.tar");
  hide_headers("q/a.tar");
  EXPECT_EQ(cache.index(b).members[0].name, "y.txt");
  EXPECT_EQ(cache.index(a).members[0].name, "x.txt");
}

TEST_F(IndexCaches, AnUnwritableFolderFallsBackToTheUsersCache) {
  const std::string tar = shard("ro/a.tar", {"x.txt"});
  fs::create_directories(tar + ".index");  // a folder of this name prevents writing the file, even for root
  const char* before = std::getenv("XDG_CACHE_HOME");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("XDG_CACHE_HOME", path("user").c_str(), 1);
  IndexCache("beside").index(tar);
  EXPECT_EQ(std::distance(fs::directory_iterator(path("user/tessera/index")), fs::directory_iterator()), 1);
  hide_headers("ro/a.tar");
  EXPECT_EQ(IndexCache("beside").index(tar).members.size(), 1U);
  write("file", "in the way");
  EXPECT_THROW(IndexCache(path("file")).index(tar), UserError) << "without a cache it reads the damaged header";
  if (before == nullptr)
    ::unsetenv("XDG_CACHE_HOME");
  else
    ::setenv("XDG_CACHE_HOME", kept.c_str(), 1);
}

TEST_F(IndexCaches, SeveralThreadsMayWriteAtOnce) {
  const std::string tar = shard("a.tar", {"x.txt", "y.txt"});
  std::vector<std::jthread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      const IndexCache cache("beside");
      for (int k = 0; k < 5; ++k) {
        if (cache.index(tar).members.size() != 2) ++wrong;
        std::error_code ignored;
        fs::remove(tar + ".index", ignored);
      }
    });
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

TEST_F(IndexCaches, WebDatasetUsesTheCacheAndKeepsTheOrderOfShards) {
  std::vector<std::string> shards, keys;
  for (int i = 20; i > 0; --i) {
    const std::string key = "k" + std::to_string(i);
    shards.push_back(shard("s" + std::to_string(i) + ".tar", {key + ".jpg", key + ".txt"}));
    keys.push_back(key);
  }
  shards.push_back(shards[3]);  // a shard that is listed twice provides its samples twice
  keys.push_back(keys[3]);
  WebDatasetSettings settings;
  settings.path = {shards};
  settings.index_cache = path("cache");
  for (int start = 0; start < 2; ++start) {
    const auto source = indexed(make_webdataset(settings));
    ASSERT_EQ(source->size(), 21);
    for (std::int64_t i = 0; i < 21; ++i) EXPECT_EQ(source->get(i).key, keys[static_cast<std::size_t>(i)]);
  }
  EXPECT_FALSE(fs::exists(shards[0] + ".index"));
  EXPECT_EQ(std::distance(fs::directory_iterator(path("cache")), fs::directory_iterator()), 20);
}

}  // namespace
}  // namespace tessera
