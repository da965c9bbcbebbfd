// Tests requests to stores, their faults, and the local copies of objects, against a server in this process.

#include <atomic>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <set>
#include <sys/file.h>
#include <thread>

#include <gtest/gtest.h>

#include "src/base/in_threads.h"
#include "src/base/md5.h"
#include "src/remote/store.h"
#include "tests/remote/fake_server.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include <tessera/base/log.h>
#include <tessera/io/atomic_file.h>

namespace tessera::remote {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

/// Sets environment variables, and restores them at the end. An empty value removes the variable.
class Variables {
 public:
  void set(const std::string& name, const std::string& value) {
    const char* const old = std::getenv(name.c_str());
    before_.try_emplace(name, old == nullptr ? std::nullopt : std::optional<std::string>(old));
    put(name, value.empty() ? std::nullopt : std::optional(value));
  }
  ~Variables() {
    for (const auto& [name, value] : before_) put(name, value);
  }

 private:
  static void put(const std::string& name, const std::optional<std::string>& value) {
    value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
  }
  std::map<std::string, std::optional<std::string>> before_;
};

/// Bytes that differ from place to place.
std::string noise(std::size_t size) {
  std::string out(size, '\0');
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<char>(i * i >> 7 ^ i);
  return out;
}

class Remote : public FolderTest {
 protected:
  Remote() {
    for (const char* name :
         {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_REGION",
          "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_NO_SIGN_REQUEST", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
          "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
          "GS_ACCESS_KEY_ID", "GS_NO_SIGN_REQUEST", "GOOGLE_OAUTH_ACCESS_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS"})
      variables_.set(name, "");
    variables_.set("AWS_EC2_METADATA_DISABLED", "true");
    variables_.set("AWS_SHARED_CREDENTIALS_FILE", path("credentials"));
    variables_.set("AWS_CONFIG_FILE", path("config"));
    variables_.set("AWS_ENDPOINT_URL_S3", server_.url());
    variables_.set("STORAGE_EMULATOR_HOST", server_.url());
    variables_.set("GCE_METADATA_HOST", server_.url().substr(7));
    variables_.set("no_proxy", "127.0.0.1");
    log::set_level(log::Level::error);
  }
  ~Remote() override { log::set_level(log::Level::info); }

  void set_keys() {
    variables_.set("AWS_ACCESS_KEY_ID", "key");
    variables_.set("AWS_SECRET_ACCESS_KEY", "secret");
  }

  CacheSettings settings() const {
    CacheSettings out;
    out.folder = config::OutputPath(path("cache"));
    out.retries = 3;
    out.timeout = 60;
    return out;
  }

  /// Adds an object to the bucket b and returns its address.
  std::string object(const std::string& key, std::string bytes) {
    server_.put("/b/" + key, std::move(bytes));
    return "s3://b/" + key;
  }

  Texts files() const {
    Texts out;
    for (const auto& entry : fs::directory_iterator(path("cache/objects"))) out.push_back(entry.path().filename().string());
    std::ranges::sort(out);
    return out;
  }
  std::uint64_t bytes_in_cache() const {
    std::uint64_t out = 0;
    for (const auto& entry : fs::directory_iterator(path("cache/objects"))) out += entry.file_size();
    return out;
  }

  /// Returns the bytes of an object, read through a new store.
  std::string read(const std::string& address) const {
    Store store(settings());
    return io::read_file(store.open(address).path());
  }

  Variables variables_;
  FakeServer server_;
};

TEST(Addresses, HaveABucketOrAHost) {
  const Address object = parse_address("s3://bucket/a/b c.tar");
  EXPECT_EQ(object.host, "bucket");
  EXPECT_EQ(object.key, "a/b c.tar");
  EXPECT_EQ(parse_address("gs://bucket").key, "");
  EXPECT_EQ(file_name("s3://bucket/a/b?.tar"), "b?.tar");
  EXPECT_EQ(file_name("https://host/a/b.tar?x=/c"), "b.tar");
  EXPECT_FALSE(is_remote("s3:/bucket/a"));
  EXPECT_EQ(error_of([] { parse_address("s3:///a"); }), "s3:///a: names no bucket");
  EXPECT_EQ(percent_encoded("a/b c+ä~", false), "a/b%20c%2B%C3%A4~");
  EXPECT_EQ(percent_encoded("a/b", true), "a%2Fb");
}

TEST(Listings, AreParsedWithTheirEntities) {
  const Listing page = parse_listing(
      "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"x\"><IsTruncated>true</IsTruncated>"
      "<Contents><Key>a&amp;lt;b.tar</Key><Size>12</Size><ETag>&quot;e1&quot;</ETag></Contents>"
      "<Contents><ETag>\"e2\"</ETag><Key>c</Key><Size>0</Size></Contents><NextContinuationToken>n/=+</NextContinuationToken></"
      "ListBucketResult>");
  ASSERT_EQ(page.objects.size(), 2U);
  EXPECT_EQ(page.objects[0].first, "a&lt;b.tar");
  EXPECT_EQ(page.objects[0].second, (ObjectState{12, "e1"}));
  EXPECT_EQ(page.objects[1].second, (ObjectState{0, "e2"}));
  EXPECT_EQ(page.next, "n/=+");
  EXPECT_EQ(parse_listing("<ListBucketResult></ListBucketResult>").next, "");
  EXPECT_EQ(error_of([] { parse_listing("<html>"); }), "expected a listing of a bucket, got <html>");
}

TEST_F(Remote, AnObjectIsReadInRangesWithItsVersionAndKeptOnDisk) {
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  const std::string bytes = noise((20 << 20) + 7), address = object("x/a.tar", bytes);
  Store store(settings());
  EXPECT_EQ(store.look_up(address), (ObjectState{bytes.size(), md5(bytes)}));
  EXPECT_EQ(io::read_file(store.open(address).path()), bytes);
  std::vector<ServerRequest> requests = server_.requests();
  for (const ServerRequest& request : requests)
    EXPECT_EQ(request.header("if-match"), request.method == "GET" ? "\"" + md5(bytes) + "\"" : "");
  Texts ranges;
  for (const ServerRequest& request : requests) ranges.push_back(request.text());
  std::ranges::sort(ranges);
  EXPECT_EQ(ranges,
            (Texts{"GET /b/x/a.tar 0-8388607", "GET /b/x/a.tar 16777216-20971526", "GET /b/x/a.tar 8388608-16777215", "HEAD /b/x/a.tar"}));
  EXPECT_EQ(io::read_file(store.open(address).path()), bytes);
  EXPECT_EQ(server_.request_texts(), Texts());
  EXPECT_EQ(store.counts().hits, 1);
  EXPECT_EQ(store.counts().misses, 1);
  EXPECT_EQ(store.counts().bytes, std::ssize(bytes));
  EXPECT_EQ(read(address), bytes);  // another store asks whether the object is still the same
  EXPECT_EQ(server_.request_texts(), Texts{"HEAD /b/x/a.tar"});
}

TEST_F(Remote, AnEmptyObjectIsAnEmptyFile) {
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  EXPECT_EQ(read(object("empty", "")), "");
}

TEST_F(Remote, FilesOfWebServersNeedNoRangesAndNoEtag) {
  const std::string bytes = noise(9 << 20);
  server_.answer([&](const ServerRequest& request) -> std::optional<ServerReply> {
    if (request.path == "/moved") return ServerReply{.status = 302, .headers = {{"Location", "/file"}}};
    return ServerReply{.headers = {{"Last-Modified", "Mon, 30 Nov 2026 10:00:00 GMT"}}, .body = bytes};
  });
  EXPECT_EQ(read(server_.url() + "/moved?token=1"), bytes);
  fs::remove_all(path("cache"));
  Store store(settings());
  EXPECT_EQ(store.read(server_.url() + "/file", 5'000'000, 100), bytes.substr(5'000'000, 100));
}

TEST_F(Remote, PartsOfAnObjectAreReadWithoutTheRest) {
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  const std::string bytes = noise(1000), address = object("a.tar", bytes);
  Store store(settings());
  EXPECT_EQ(store.read(address, 100, 50), bytes.substr(100, 50));
  EXPECT_EQ(store.read(address, 1000, 0), "");
  EXPECT_EQ(server_.request_texts(), (Texts{"HEAD /b/a.tar", "GET /b/a.tar 100-149"}));
  EXPECT_FALSE(store.expects(address));
  object("a.tar", noise(1001));
  EXPECT_EQ(error_of([&] { store.read(address, 0, 1); }),
            address + ": has changed since this process first saw it: start again, and write changed data under new names");
}

TEST_F(Remote, RequestsAreRepeatedWhenTheServerIsBusyOrTheConnectionIsCut) {
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  const std::string bytes = noise(100'000), address = object("a.tar", bytes);
  std::atomic<int> gets = 0;
  server_.answer([&](const ServerRequest& request) -> std::optional<ServerReply> {
    if (request.method == "HEAD") return std::nullopt;
    switch (gets++) {
      case 0:
        return ServerReply{.status = 503, .headers = {{"Retry-After", "0"}}, .body = "<Error><Code>SlowDown</Code></Error>"};
      case 1: {
        ServerReply reply = server_.usual(request);
        reply.cut_after = 50'000;
        return reply;
      }
      default:
        return std::nullopt;
    }
  });
  Store store(settings());
  EXPECT_EQ(io::read_file(store.open(address).path()), bytes);
  EXPECT_EQ(gets, 3);
  EXPECT_EQ(store.counts().retries, 2);
}

TEST_F(Remote, AServerThatStaysBusyOrSilentIsNamed) {
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  const std::string address = object("a.tar", noise(100));
  const std::string host = server_.url().substr(7);
  const std::string hint = ": check the network and the server, or set data.cache.retries or data.cache.timeout to more";
  server_.answer([](const ServerRequest&) { return ServerReply{.status = 500}; });
  EXPECT_EQ(error_of([&] { read(address); }), address + ": HTTP 500 from " + host + ", 4 times" + hint);
  server_.answer([this](const ServerRequest& request) -> std::optional<ServerReply> {
    if (request.method == "HEAD") return std::nullopt;
    ServerReply reply = server_.usual(request);
    reply.stalls = true;
    return reply;
  });
  CacheSettings once = settings();
  once.retries = 0;
  once.timeout = 1;
  Store store(once);
  EXPECT_EQ(error_of([&] { store.open(address); }),
            address + ": Operation too slow. Less than 1024 bytes/sec transferred the last 1 seconds from " + host + ", 1 time" + hint);
  EXPECT_EQ(files(), Texts());
}

TEST_F(Remote, WrongBytesAreFetchedAgain) {
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  const std::string bytes = noise(1000), address = object("a.tar", bytes);
  std::atomic<int> wrong = 2;
  server_.answer([&](const ServerRequest& request) -> std::optional<ServerReply> {
    ServerReply reply = server_.usual(request);
    if (request.method == "GET" && wrong-- > 0) reply.body[500] = static_cast<char>(reply.body[500] ^ 1);
    return reply;
  });
  EXPECT_EQ(read(address), bytes);
  EXPECT_EQ(server_.request_texts(), (Texts{"HEAD /b/a.tar", "GET /b/a.tar", "GET /b/a.tar", "GET /b/a.tar"}));
  fs::remove_all(path("cache"));
  wrong = 3;
  EXPECT_EQ(error_of([&] { read(address); }), address + ": the bytes that arrive are not those of the object: their MD5 is not " +
                                                  md5(bytes) + ", 3 times: look for a proxy or a disk that damages data");
  EXPECT_EQ(files(), Texts());
}

TEST_F(Remote, AnEtagThatIsNoMd5IsNotCompared) {
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  const std::string address = object("a.tar", "bytes");
  for (const std::string& tag : {md5("other"), md5("other") + "-2"}) {
    server_.answer([&](const ServerRequest& request) -> std::optional<ServerReply> {
      ServerReply reply = server_.usual({.method = request.method, .path = request.path});
      reply.headers["ETag"] = "\"" + tag + "\"";
      if (!tag.ends_with("-2")) reply.headers["x-amz-server-side-encryption"] = "aws:kms";
      return reply;
    });
    EXPECT_EQ(read(address), "bytes");
  }
}

TEST_F(Remote, AChangedObjectIsNamed) {
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  const std::string changed = ": has changed since this process first saw it: start again, and write changed data under new names";
  const std::string address = object("a.tar", noise(1000));
  Store store(settings());
  store.look_up(address);
  object("a.tar", noise(2000));
  EXPECT_EQ(error_of([&] { store.open(address); }), address + changed);
  // A server that ignores If-Match.
  server_.answer([&](const ServerRequest& request) -> std::optional<ServerReply> {
    return server_.usual({.method = request.method, .path = request.path});
  });
  object("a.tar", noise(1000) + "x");
  EXPECT_EQ(error_of([&] { store.open(address); }), address + changed);
  EXPECT_EQ(files(), Texts());
  EXPECT_EQ(read(address), noise(1000) + "x");
}

TEST_F(Remote, MissingObjectsAndDeniedAccessAreOneLine) {
  set_keys();
  EXPECT_EQ(error_of([&] { read("s3://b/none.tar"); }), "s3://b/none.tar: there is no such object");
  EXPECT_EQ(error_of([&] { read(server_.url() + "/none.tar"); }), server_.url() + "/none.tar: there is no such file (HTTP 404)");
  const std::string address = object("a.tar", "x");
  const auto answer_with = [&](int status, const std::string& code, std::map<std::string, std::string> headers = {}) {
    server_.answer([=](const ServerRequest& request) {
      return ServerReply{
          .status = status,
          .headers = headers,
          .body = request.method == "HEAD" ? "" : "<Error><Code>" + code + "</Code><Message>Some &lt;text&gt;</Message></Error>"};
    });
    return error_of([&] { read(address); });
  };
  EXPECT_EQ(answer_with(403, "AccessDenied"),
            address + ": access is denied (HTTP 403 AccessDenied: Some <text>): check the credentials, and their right to read the bucket");
  EXPECT_EQ(answer_with(400, "ExpiredToken"),
            address + ": the credentials have expired (HTTP 400 ExpiredToken: Some <text>): renew them and start again");
  EXPECT_EQ(answer_with(301, "PermanentRedirect", {{"x-amz-bucket-region", "eu-west-1"}}),
            address + ": the bucket is in another region (HTTP 301 PermanentRedirect: Some <text>): set AWS_REGION=eu-west-1");
}

TEST_F(Remote, AnAddressSignedForGetNeedsNoHead) {
  server_.put("/a.tar", "bytes");
  server_.answer(
      [](const ServerRequest& request) { return request.method == "HEAD" ? std::optional(ServerReply{.status = 403}) : std::nullopt; });
  EXPECT_EQ(read(server_.url() + "/a.tar?X-Amz-Signature=1"), "bytes");
}

TEST_F(Remote, RequestsAreSignedWithTheKeysOfTheEnvironmentOrOfAProfile) {
  object("a b+ä.tar", "bytes");
  const auto authorization = [&] {
    fs::remove_all(path("cache"));
    EXPECT_EQ(read("s3://b/a b+ä.tar"), "bytes");
    const std::vector<ServerRequest> requests = server_.requests();
    EXPECT_EQ(requests.back().header("host"), server_.url().substr(7));
    return requests.back();
  };
  set_keys();
  variables_.set("AWS_SESSION_TOKEN", "temporary");
  const ServerRequest request = authorization();
  const std::string text = request.header("authorization");
  EXPECT_TRUE(text.starts_with("AWS4-HMAC-SHA256 Credential=key/")) << text;
  EXPECT_NE(text.find("/us-east-1/s3/aws4_request"), std::string::npos) << text;
  EXPECT_NE(text.find("SignedHeaders=host;if-match;x-amz-content-sha256;x-amz-date;x-amz-security-token"), std::string::npos) << text;
  EXPECT_EQ(request.header("x-amz-security-token"), "temporary");

  variables_.set("AWS_ACCESS_KEY_ID", "");
  variables_.set("AWS_PROFILE", "other");
  write("credentials",
        "[default]\naws_access_key_id = wrong\n[other]\n# a comment\naws_access_key_id=profile_key\naws_secret_access_key = s\n");
  write("config", "[profile other]\nregion = eu-west-3\n");
  const std::string of_profile = authorization().header("authorization");
  EXPECT_TRUE(of_profile.starts_with("AWS4-HMAC-SHA256 Credential=profile_key/")) << of_profile;
  EXPECT_NE(of_profile.find("/eu-west-3/s3/aws4_request"), std::string::npos) << of_profile;
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  EXPECT_EQ(authorization().header("authorization"), "");
}

TEST_F(Remote, KeysOfContainersAndInstancesAreRenewed) {
  std::atomic<int> given = 0;
  std::atomic<bool> expired = false;
  server_.put("/b/a.tar", "bytes");
  server_.answer([&](const ServerRequest& request) -> std::optional<ServerReply> {
    if (request.path == "/latest/api/token") return ServerReply{.body = request.method == "PUT" ? "token" : "?"};
    if (request.path == "/latest/meta-data/iam/security-credentials/") return ServerReply{.body = "role\n"};
    if (request.path == "/keys" || request.path == "/latest/meta-data/iam/security-credentials/role") {
      EXPECT_EQ(request.path == "/keys" ? request.header("authorization") : request.header("x-aws-ec2-metadata-token"), "token");
      const int number = ++given;
      return ServerReply{.body =
                             concat("{\"AccessKeyId\": \"k", number, "\", \"SecretAccessKey\": \"s\", \"Token\": \"t\", \"Expiration\": \"",
                                    number == 1 ? "2001-01-01T00:00:00Z" : "2101-01-01T00:00:00Z", "\"}")};
    }
    if (expired && request.header("authorization").find("Credential=k2/") != std::string::npos)
      return ServerReply{.status = 400, .body = "<Error><Code>ExpiredToken</Code></Error>"};
    return std::nullopt;
  });
  variables_.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", server_.url() + "/keys");
  variables_.set("AWS_CONTAINER_AUTHORIZATION_TOKEN", "token");
  Client client(settings());
  client.look_up("s3://b/a.tar");  // with keys that have expired long ago
  EXPECT_EQ(given, 1);
  client.look_up("s3://b/a.tar");
  client.look_up("s3://b/a.tar");
  EXPECT_EQ(given, 2);
  expired = true;  // before their time
  client.look_up("s3://b/a.tar");
  EXPECT_EQ(given, 3);

  variables_.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", "");
  variables_.set("AWS_EC2_METADATA_DISABLED", "");
  variables_.set("AWS_EC2_METADATA_SERVICE_ENDPOINT", server_.url());
  Client(settings()).look_up("s3://b/a.tar");
  EXPECT_EQ(given, 4);
}

TEST_F(Remote, WithoutCredentialsTheErrorNamesTheWays) {
  const std::string ways =
      "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE to a profile with keys, or AWS_NO_SIGN_REQUEST=true "
      "for a public bucket";
  EXPECT_EQ(error_of([&] { read("s3://b/a"); }), "s3: there are no credentials (neither in the environment nor in ~/.aws): " + ways);
  variables_.set("AWS_PROFILE", "none");
  EXPECT_EQ(error_of([&] { read("s3://b/a"); }), "s3: there are no credentials (the profile none does not exist): " + ways);
  variables_.set("AWS_PROFILE", "");
  write("config", "[default]\nsso_session = company\n");
  EXPECT_EQ(error_of([&] { read("s3://b/a"); }),
            "s3: the profile default uses sso_session, which Tessera cannot read: run eval \"$(aws configure "
            "export-credentials --format env)\" first");
  variables_.set("GOOGLE_APPLICATION_CREDENTIALS", "/k.json");
  EXPECT_TRUE(error_of([&] {
                read("gs://b/a");
              }).starts_with("gs: Tessera cannot use the key file /k.json (GOOGLE_APPLICATION_CREDENTIALS): set "));
}

TEST_F(Remote, GoogleTakesTokensOrKeys) {
  server_.put("/b/a.tar", "bytes");
  server_.answer([](const ServerRequest& request) -> std::optional<ServerReply> {
    if (request.path != "/computeMetadata/v1/instance/service-accounts/default/token") return std::nullopt;
    EXPECT_EQ(request.header("metadata-flavor"), "Google");
    return ServerReply{.body = "{\"access_token\": \"of_machine\", \"expires_in\": 3599, \"token_type\": \"Bearer\"}"};
  });
  EXPECT_EQ(read("gs://b/a.tar"), "bytes");
  EXPECT_EQ(server_.requests().back().header("authorization"), "Bearer of_machine");
  variables_.set("GOOGLE_OAUTH_ACCESS_TOKEN", "given");
  read("gs://b/a.tar");
  EXPECT_EQ(server_.requests().back().header("authorization"), "Bearer given");
  variables_.set("GS_ACCESS_KEY_ID", "hmac");
  variables_.set("GS_SECRET_ACCESS_KEY", "secret");
  read("gs://b/a.tar");
  EXPECT_TRUE(server_.requests().back().header("authorization").starts_with("AWS4-HMAC-SHA256 Credential=hmac/"));
}

TEST_F(Remote, FoldersAndWildcardsAreListed) {
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  for (const char* name : {"f/a&1.tar", "f/b.tar", "f/c.tar", "f/d.txt", "f/deeper/e.tar", "f2/g.tar"}) object(name, name);
  Store store(settings());
  EXPECT_EQ(store.expand("s3://b/f/", ".tar"), (Texts{"s3://b/f/a&1.tar", "s3://b/f/b.tar", "s3://b/f/c.tar"}));
  EXPECT_EQ(server_.requests().size(), 2U);  // pages
  EXPECT_EQ(store.expand("s3://b/f/[b-d].*", ".tar"), (Texts{"s3://b/f/b.tar", "s3://b/f/c.tar", "s3://b/f/d.txt"}));
  EXPECT_EQ(store.expand("s3://b/f/none", ".tar"), Texts{"s3://b/f/none"});
  EXPECT_EQ(error_of([&] { store.expand("s3://b/f/*.gz", ".tar"); }), "s3://b/f/*.gz: no object matches");
  EXPECT_EQ(error_of([&] { store.expand("s3://b/*/x.tar", ".tar"); }),
            "s3://b/*/x.tar: a wildcard is possible in the name of the files only, not in a folder's");
  server_.requests();
  EXPECT_EQ(store.look_up("s3://b/f/b.tar").size, 7U);  // known from the listing
  EXPECT_EQ(server_.request_texts(), Texts());
  EXPECT_EQ(error_of([&] { store.expand("https://host/f/", ".tar"); }),
            "https://host/f/: folders of web servers cannot be listed; name the files, as in https://host/f/{00000..00099}.tar");
}

TEST_F(Remote, FilesAreStoredAndRemoved) {
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  const std::string file = write("file", noise(300'000));
  Client client(settings());
  client.put("s3://b/new", file);
  EXPECT_EQ(read("s3://b/new"), noise(300'000));
  client.remove("s3://b/new");
  client.remove("s3://b/new");
  EXPECT_EQ(error_of([&] { read("s3://b/new"); }), "s3://b/new: there is no such object");
  server_.answer(
      [&](const ServerRequest& request) { return server_.usual({.method = request.method, .path = request.path, .body = "other"}); });
  EXPECT_EQ(error_of([&] { client.put("s3://b/new", file); }),
            "s3://b/new: the store has received other bytes than those of " + file + ": check the network, and write it again");
  EXPECT_EQ(error_of([&] { client.put("https://host/new", file); }), "https://host/new: files can be written to s3:// and gs:// only");
}

TEST_F(Remote, TheLeastRecentlyUsedFilesMakeRoom) {
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  CacheSettings small = settings();
  small.size_mb = 2;
  Store store(small);
  Texts addresses;
  for (const char* name : {"a", "b", "c", "d"}) addresses.push_back(object(name, name + noise(700'000)));
  const auto name_of = [](const std::string& file) { return file.substr(file.size() - 1); };
  const auto names = [&] {
    std::set<std::string> out;
    for (const std::string& file : files()) out.insert(name_of(file));
    return out;
  };
  for (int i : {0, 1}) store.open(addresses[static_cast<std::size_t>(i)]);
  for (const std::string& file : files())  // a was used after b
    fs::last_write_time(path("cache/objects/" + file),
                        fs::file_time_type::clock::now() - std::chrono::seconds(name_of(file) == "a" ? 10 : 20));
  server_.answer([&](const ServerRequest& request) -> std::optional<ServerReply> {
    EXPECT_LE(bytes_in_cache(), 2U << 20) << request.text() << ": room is made before the object arrives";
    return std::nullopt;
  });
  store.open(addresses[2]);
  EXPECT_EQ(names(), (std::set<std::string>{"a", "c"}));
  const Lease lease = store.open(addresses[0]);
  for (const std::string& file : files())
    fs::last_write_time(path("cache/objects/" + file),
                        fs::file_time_type::clock::now() - std::chrono::seconds(name_of(file) == "a" ? 20 : 10));
  store.open(addresses[3]);
  EXPECT_EQ(names(), (std::set<std::string>{"a", "d"}));  // a is older, but in use
  EXPECT_EQ(error_of([&] { store.open(object("large", noise((2 << 20) + 1))); }),
            "s3://b/large: has 2.0 MiB, more than data.cache.size_mb allows: set it to 3 or more");
}

TEST_F(Remote, ThreadsAndStoresFetchAnObjectOnce) {
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  const std::string address = object("a.tar", noise(3'000'000));
  Store first(settings()), second(settings());
  for_each_in_threads(
      8, 8, [&](std::size_t i) { EXPECT_EQ(io::read_file((i % 2 == 0 ? first : second).open(address).path()), noise(3'000'000)); });
  const Texts texts = server_.request_texts();
  EXPECT_EQ(std::ranges::count(texts, "GET /b/a.tar"), 1);
}

TEST_F(Remote, WhatAKilledProcessLeftBehindIsRemovedOrReplaced) {
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  const std::string bytes = noise(5000), address = object("a.tar", bytes);
  read(address);
  const std::string complete = path("cache/objects/" + files().at(0));
  fs::rename(complete, complete + ".part");
  fs::resize_file(complete + ".part", 9000);
  write("cache/objects/other.part", "half");
  const std::string living = write("cache/objects/living.part", "being fetched");
  const OpenFile holder(::open(living.c_str(), O_RDWR));
  ASSERT_EQ(::flock(holder.descriptor(), LOCK_EX), 0);
  EXPECT_EQ(read(address), bytes);
  EXPECT_EQ(files(), (Texts{fs::path(complete).filename().string(), "living.part"}));
}

TEST_F(Remote, ObjectsAreFetchedAheadInTheBackground) {
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  Texts addresses;
  for (int i = 0; i < 20; ++i) addresses.push_back(object(std::to_string(i), noise(static_cast<std::size_t>(10'000 + i))));
  std::atomic<int> gets = 0;
  server_.answer([&](const ServerRequest& request) -> std::optional<ServerReply> {
    if (request.method == "GET" && ++gets == 20) gets.notify_all();
    return std::nullopt;
  });
  Store store(settings());
  store.fetch_ahead("s3://b/none");
  for (const std::string& address : addresses) store.fetch_ahead(address);
  for (int now = gets; now < 20; now = gets) gets.wait(now);
  for (std::size_t i = 0; i < addresses.size(); ++i) EXPECT_EQ(io::read_file(store.open(addresses[i]).path()), noise(10'000 + i));
  EXPECT_EQ(gets, 20);
  EXPECT_EQ(error_of([&] { store.open("s3://b/none"); }), "s3://b/none: there is no such object");
}

TEST_F(Remote, AStoreThatEndsStopsItsTransfers) {
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  const std::string address = object("a.tar", noise(1000));
  std::atomic<bool> asked = false;
  server_.answer([&](const ServerRequest& request) -> std::optional<ServerReply> {
    if (request.method == "HEAD") return std::nullopt;
    asked = true;
    asked.notify_all();
    ServerReply reply = server_.usual(request);
    reply.stalls = true;
    return reply;
  });
  CacheSettings patient = settings();
  patient.timeout = 3600;
  {
    Store store(patient);
    store.fetch_ahead(address);
    asked.wait(false);
  }
  EXPECT_EQ(files(), Texts());
}

TEST_F(Remote, AFolderThatCannotBeWrittenIsNamed) {
  CacheSettings wrong = settings();
  wrong.folder = config::OutputPath(write("file", "x"));
  EXPECT_EQ(error_of([&] { Store store(wrong); }), path("file") + " (data.cache.folder): cannot be written: Not a directory");
}

/// Tests against a server that checks signatures, which scripts/check/remote.py starts. Its address is in TESSERA_TEST_S3, and its keys
/// are "key" and "secret".
class SigningServer : public Remote {
 protected:
  void SetUp() override {
    const char* const url = std::getenv("TESSERA_TEST_S3");
    if (url == nullptr) GTEST_SKIP() << "no server: TESSERA_TEST_S3 is not set";
    variables_.set("AWS_ENDPOINT_URL_S3", url);
    set_keys();
    [[maybe_unused]] static const bool made = (client_.put(bucket_, write("empty", "")), true);  // the bucket of all these tests
  }

  const std::string bucket_ = concat("s3://tessera-", ::getpid(), "/");
  Client client_{settings()};
};

TEST_F(SigningServer, AcceptsKeysWithAllCharacters) {
  const Texts names = {"plain.tar",   "f/a b.tar", "f/a+b.tar", "f/ä€.tar", "f/a&b=c,d.tar", "f/100%.tar", "f/a#b;c:d@e!f$g'h(i)j*k.tar",
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
  EXPECT_EQ(error_of([&] { store.open(address); }),
            address + ": has changed since this process first saw it: start again, and write changed data under new names");
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
  EXPECT_TRUE(error.ends_with("): check the credentials, and their right to read the bucket")) << error;
}

}  // namespace
}  // namespace tessera::remote
