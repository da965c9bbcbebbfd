// Tests requests against a server that checks signatures.

#include <set>

#include <gtest/gtest.h>

#include "src/base/in_threads.h"
#include "src/base/md5.h"
#include "tests/remote/remote_fixture.h"
#include "tests/support/error_of.h"

namespace tessera::remote {
namespace {

/// Tests against a server that checks signatures, which scripts/check/remote.py starts. Its address is in TESSERA_TEST_S3, and its keys
/// are "key" and "secret".
class SigningServer : public Remote {
 protected:
  void SetUp() override {
    const char* const url = std::getenv("TESSERA_TEST_S3");
    if (url == nullptr) GTEST_SKIP() << "no server: TESSERA_TEST_S3 is not set";
    variables_.set("AWS_ENDPOINT_URL_S3", url);
    set_keys();
    [[maybe_unused]] static const bool made =
        (client_.put(bucket_, write("empty", "")), true);  // the bucket of all these tests
  }

  const std::string bucket_ = concat("s3://tessera-", ::getpid(), "/");
  Client client_{settings()};
};

TEST_F(SigningServer, AcceptsKeysWithAllCharacters) {
  const Texts names = {
      "plain.tar",   "f/a b.tar", "f/a+b.tar", "f/ä€.tar", "f/a&b=c,d.tar", "f/100%.tar", "f/a#b;c:d@e!f$g'h(i)j*k.tar",
      "f/q?x=1.tar", "f/~-_.tar"};
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const std::string bytes = name + noise(1000);
    client_.put(bucket_ + name, write("file", bytes));
    EXPECT_EQ(client_.look_up(bucket_ + name), (ObjectState{bytes.size(), md5(bytes)}));
    EXPECT_EQ(read(bucket_ + name), bytes);
  }
  std::set<std::string> listed;
  for (const ListedObject& object : client_.list(bucket_ + "f/")) listed.insert(object.address.substr(bucket_.size()));
  EXPECT_EQ(listed, std::set(names.begin() + 1, names.end()));
  EXPECT_EQ(client_.list(bucket_ + "f/a&b=").size(), 1U);
  EXPECT_EQ(client_.list(bucket_ + "f/a+").size(), 1U);
  EXPECT_EQ(client_.list(bucket_ + "f/a b").size(), 1U);
  client_.remove(bucket_ + names[1]);
  EXPECT_EQ(error_of([&] { client_.look_up(bucket_ + names[1]); }), bucket_ + names[1] + ": there is no such object");
}

TEST_F(SigningServer, SendsRangesOfAnObjectThatIsStillTheSame) {
  const std::string bytes = noise((17 << 20) + 3), address = bucket_ + "large.tar";
  client_.put(address, write("file", bytes));
  EXPECT_EQ(read(address), bytes);
  fs::remove_all(path("cache"));
  Store store(settings());
  store.look_up(address);
  client_.put(address, write("file", bytes + "x"));
  EXPECT_EQ(
      error_of([&] { store.open(address); }),
      address + ": has changed since this process first saw it: start again, and write changed data under new names");
}

TEST_F(SigningServer, TakesUploadsInParts) {
  const std::string bytes = noise((33 << 20) + 7), address = bucket_ + "up/a+b c.safetensors",
                    file = write("file", bytes);
  client_.put(address, file);
  EXPECT_EQ(read(address), bytes);
  EXPECT_NE(client_.look_up(address).version, md5(bytes)) << "the ETag of an object in parts";
  client_.put(bucket_ + "up/", write("file", ""));
  client_.abort_uploads(bucket_ + "up/");
  Texts keys;
  for (const ListedObject& object : client_.list(bucket_, /*with_subfolders=*/true))
    if (object.address.starts_with(bucket_ + "up/a")) keys.push_back(object.address);
  EXPECT_EQ(keys, Texts{address});
}

TEST_F(SigningServer, ListsManyPages) {
  const std::string file = write("file", "x");
  constexpr std::size_t count = 2010;  // a page has 1,000
  for_each_in_threads(count, 8, [&](std::size_t i) { client_.put(concat(bucket_, "p/", 10'000 + i, ".tar"), file); });
  const std::vector<ListedObject> all = client_.list(bucket_ + "p/");
  ASSERT_EQ(all.size(), count);
  EXPECT_EQ(all.back().address, concat(bucket_, "p/", 10'000 + count - 1, ".tar"));
}

TEST_F(SigningServer, RefusesWrongKeysInOneLine) {
  client_.put(bucket_ + "a", write("file", "x"));
  variables_.set("AWS_SECRET_ACCESS_KEY", "wrong");
  const std::string error = error_of([&] { Client(settings()).look_up(bucket_ + "a"); });
  EXPECT_TRUE(error.starts_with(bucket_ + "a: access is denied (HTTP 403 SignatureDoesNotMatch: ")) << error;
  EXPECT_TRUE(error.ends_with("): check the credentials, and their rights in the bucket")) << error;
}

}  // namespace
}  // namespace tessera::remote
