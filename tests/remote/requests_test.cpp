// Tests addresses, requests to stores, their faults and their credentials, against a server in this process.

#include <atomic>

#include <gtest/gtest.h>

#include "src/base/md5.h"
#include "tests/remote/remote_fixture.h"
#include "tests/support/error_of.h"

namespace tessera::remote {
namespace {

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

TEST_F(Remote, TheFirstRetryComesSoonAndThePausesGrow) {
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  const std::string address = object("a.tar", "bytes");
  std::atomic<int> failures = 3;
  server_.answer([&](const ServerRequest&) { return failures-- > 0 ? std::optional(ServerReply{.status = 503}) : std::nullopt; });
  log::set_level(log::Level::warning);
  testing::internal::CaptureStderr();
  EXPECT_EQ(read(address), "bytes");
  const std::string text = testing::internal::GetCapturedStderr();
  std::vector<double> pauses;
  const std::string before = "trying again in ";
  for (std::size_t at = text.find(before); at != std::string::npos; at = text.find(before, at + 1))
    pauses.push_back(std::stod(text.substr(at + before.size())));
  ASSERT_EQ(pauses.size(), 3U) << text;
  double longest = 0.03;
  for (const double pause : pauses) {
    EXPECT_GE(pause, longest / 2 - 0.006);  // the log rounds to hundredths
    EXPECT_LE(pause, longest + 0.006);
    longest *= 2.5;
  }
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
            address + ": access is denied (HTTP 403 AccessDenied: Some <text>): check the credentials, and their rights in the bucket");
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
  server_.answer([&](const ServerRequest& request) {
    return server_.usual({.method = request.method, .path = request.path, .body = "other", .headers = {}});
  });
  EXPECT_EQ(error_of([&] { client.put("s3://b/new", file); }),
            "s3://b/new: the store has received other bytes than were sent: check the network, and write it again");
  EXPECT_EQ(error_of([&] { client.put("https://host/new", file); }), "https://host/new: files can be written to s3:// and gs:// only");
  EXPECT_EQ(error_of([&] { client.put("s3://b/new", path("none")); }), path("none") + ": cannot read: No such file or directory");
}

TEST_F(Remote, LargeFilesAreStoredInParts) {
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  const std::string bytes = noise((33 << 20) + 5), file = write("file", bytes);
  Client client(settings());
  std::atomic<int> busy = 0, damaged = 0;
  server_.answer([&](const ServerRequest& request) -> std::optional<ServerReply> {
    if (request.method == "PUT" && request.query.starts_with("partNumber=2&") && ++busy == 1) return ServerReply{.status = 503};
    if (request.method != "PUT" || !request.query.starts_with("partNumber=3&") || ++damaged != 1) return std::nullopt;
    ServerRequest other = request;
    other.body[0] ^= 1;  // the store notices, because the MD5 differs
    return server_.usual(other);
  });
  client.put("s3://b/a b", file);
  EXPECT_EQ(server_.objects().at("/b/a b"), bytes);
  EXPECT_EQ(server_.uploads(), 0U);
  std::map<std::string, int> sizes;
  for (const ServerRequest& request : server_.requests())
    if (request.method == "PUT") sizes[request.query] = static_cast<int>(request.body.size());
  EXPECT_EQ(sizes, (std::map<std::string, int>{{"partNumber=1&uploadId=id%201", 16 << 20},
                                               {"partNumber=2&uploadId=id%201", 16 << 20},
                                               {"partNumber=3&uploadId=id%201", (1 << 20) + 5}}));
  EXPECT_EQ(busy, 2);
  EXPECT_EQ(damaged, 2);
}

TEST_F(Remote, AnUploadThatFailsIsAborted) {
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  const std::string file = write("file", noise(17 << 20));
  Client client(settings());
  const auto refuse = [&](const std::string& method, const std::string& query, const ServerReply& with) {
    server_.answer([&, method, query, with](const ServerRequest& request) -> std::optional<ServerReply> {
      return request.method == method && request.query.starts_with(query) ? std::optional(with) : std::nullopt;
    });
  };
  refuse("PUT", "partNumber=2", {.status = 403, .body = "<Error><Code>AccessDenied</Code></Error>"});
  EXPECT_EQ(error_of([&] { client.put("s3://b/a", file); }),
            "s3://b/a: access is denied (HTTP 403 AccessDenied): check the credentials, and their rights in the bucket");
  // A store may say that an upload has failed after the head of a successful reply.
  refuse("POST", "uploadId", {.status = 200, .body = "<Error><Code>InternalError</Code><Message>again</Message></Error>"});
  EXPECT_EQ(error_of([&] { client.put("s3://b/a", file); }), "s3://b/a: HTTP 500 InternalError: again");
  EXPECT_EQ(server_.uploads(), 0U);
  EXPECT_TRUE(server_.objects().empty());

  server_.answer([&](const ServerRequest& request) -> std::optional<ServerReply> {
    if (request.method == "DELETE" || request.query.starts_with("partNumber=2")) return ServerReply{.status = 403};
    return std::nullopt;
  });
  EXPECT_THROW(client.put("s3://b/run/a", file), UserError);
  EXPECT_THROW(client.put("s3://b/other/a", file), UserError);
  EXPECT_EQ(server_.uploads(), 2U) << "as after a kill";
  server_.answer({});
  client.abort_uploads("s3://b/run/");
  EXPECT_EQ(server_.uploads(), 1U);
}

TEST_F(Remote, AnUploadIsCompleteEvenIfTheReplyThatSaysSoIsLost) {
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  const std::string bytes = noise((17 << 20) + 1), file = write("file", bytes);
  const std::string last = md5(bytes.substr(16 << 20)), first = md5(bytes.substr(0, 16 << 20));
  std::string raw;
  for (const std::string& each : {first, last})
    for (std::size_t i = 0; i < each.size(); i += 2) raw += static_cast<char>(std::stoi(each.substr(i, 2), nullptr, 16));
  std::string tag = md5(raw) + "-2";
  int completions = 0;
  server_.answer([&](const ServerRequest& request) -> std::optional<ServerReply> {
    if (request.method == "POST" && request.query.starts_with("uploadId") && ++completions % 2 == 1) {
      server_.usual(request);
      return ServerReply{.status = 503};
    }
    if (request.method != "HEAD") return std::nullopt;
    ServerReply reply = server_.usual(request);
    reply.headers["ETag"] = "\"" + tag + "\"";
    return reply;
  });
  Client client(settings());
  client.put("s3://b/a", file);
  EXPECT_EQ(completions, 2) << "the store does not know the upload any more";
  EXPECT_EQ(server_.objects().at("/b/a"), bytes);
  tag[0] ^= 1;
  EXPECT_EQ(error_of([&] { client.put("s3://b/a", file); }), "s3://b/a: there is no such object")
      << "another process has stored another one";
}

TEST_F(Remote, WithATokenGoogleReceivesAFileInOneRequest) {
  variables_.set("GOOGLE_OAUTH_ACCESS_TOKEN", "token");
  const std::string bytes = noise(17 << 20);
  Client(settings()).put("gs://b/a", write("file", bytes));
  EXPECT_EQ(server_.request_texts(), Texts{"PUT /b/a"});
  EXPECT_EQ(server_.objects().at("/b/a"), bytes);
}

TEST_F(Remote, AListingThatIsCutIsNoListing) {
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  Client client(settings());
  const auto error_with = [&](const std::string& body) {
    server_.answer([=](const ServerRequest&) { return ServerReply{.body = body}; });
    return error_of([&] { client.list("s3://b/f/"); });
  };
  EXPECT_EQ(error_with("<html>"), "s3://b/f/: expected a listing of a bucket, got <html>");
  // Version 1 of the listings has NextMarker.
  EXPECT_EQ(error_with("<ListBucketResult><IsTruncated>true</IsTruncated><NextMarker>f/a</NextMarker></ListBucketResult>"),
            "s3://b/f/: the listing names no next page: the store must have ListObjectsV2, version 2 of S3's listings");
}

TEST_F(Remote, NamesOfFilesOnWebServersMayHaveSpaces) {
  server_.put("/x/a b+ä.jpg", "bytes");
  EXPECT_EQ(read(joined(server_.url() + "/x", "a b+ä.jpg")), "bytes");
  EXPECT_EQ(read(server_.url() + "/x/a%20b+%C3%A4.jpg"), "bytes");
}

TEST_F(Remote, ListingsMayIncludeSubfolders) {
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  for (const char* key : {"f/a", "f/g/b", "f/g/h/c", "other"}) object(key, "x");
  const auto keys = [](const std::vector<ListedObject>& all) {
    Texts out;
    for (const ListedObject& each : all) out.push_back(each.address);
    return out;
  };
  Client client(settings());
  EXPECT_EQ(keys(client.list("s3://b/f/")), Texts{"s3://b/f/a"});
  EXPECT_EQ(keys(client.list("s3://b/f/", /*with_subfolders=*/true)), (Texts{"s3://b/f/a", "s3://b/f/g/b", "s3://b/f/g/h/c"}));
}

}  // namespace
}  // namespace tessera::remote
