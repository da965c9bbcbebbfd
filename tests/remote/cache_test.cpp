// Tests the local copies of objects, against a server in this process.

#include <atomic>
#include <fcntl.h>
#include <set>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "src/base/in_threads.h"
#include "tests/remote/remote_fixture.h"
#include "tests/support/error_of.h"

namespace tessera::remote {
namespace {

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

TEST_F(Remote, TheTimeOfUseIsWrittenOnceASecond) {
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  const std::string address = object("a", "bytes");
  Store store(settings());
  store.open(address);
  const std::string file = path("cache/objects/" + files().at(0));
  const auto now = fs::file_time_type::clock::now(), later = now + std::chrono::seconds(100), earlier = now - std::chrono::seconds(100);
  for (const bool reads : {true, false}) {
    const auto use = [&] { reads ? static_cast<void>(store.open(address)) : static_cast<void>(store.expects(address)); };
    fs::last_write_time(file, later);
    use();
    EXPECT_GE(fs::last_write_time(file), later) << "not written again";
    fs::last_write_time(file, earlier);
    use();
    EXPECT_GE(fs::last_write_time(file), now - std::chrono::seconds(1));
  }
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

TEST_F(Remote, ThreadsThatFetchAheadHaveALowPriority) {
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  const std::string address = object("a", "bytes");
  const auto lowest = [] {
    int out = 0;
    for (const auto& thread : fs::directory_iterator("/proc/self/task"))
      out = std::max(out, ::getpriority(PRIO_PROCESS, static_cast<id_t>(std::stoi(thread.path().filename().string()))));
    return out;
  };
  const int own = ::getpriority(PRIO_PROCESS, 0);
  Store store(settings());
  store.open(address);
  EXPECT_EQ(lowest(), own) << "a thread that waits for the object fetches it with its own priority";
  fs::remove(path("cache/objects/" + files().at(0)));
  store.fetch_ahead(address);
  while (!store.is_idle()) std::this_thread::yield();
  EXPECT_EQ(lowest(), std::min(own + 5, 19));
}

/// Tests of transfers that would not end by themselves.
class StalledTransfer : public Remote {
 protected:
  std::function<std::optional<ServerReply>(const ServerRequest&)> stalled_at_get(std::atomic<bool>& asked) {
    return [&](const ServerRequest& request) -> std::optional<ServerReply> {
      if (request.method == "HEAD") return std::nullopt;
      asked = true;
      asked.notify_all();
      ServerReply reply = server_.usual(request);
      reply.stalls = true;
      return reply;
    };
  }
  CacheSettings patient() const {
    CacheSettings out = settings();
    out.timeout = 3600;
    return out;
  }
};

TEST_F(StalledTransfer, EndsWithItsStore) {
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  const std::string address = object("a.tar", noise(1000));
  std::atomic<bool> asked = false;
  server_.answer(stalled_at_get(asked));
  {
    Store store(patient());
    store.fetch_ahead(address);
    asked.wait(false);
  }
  EXPECT_EQ(files(), Texts());
}

// The child process checks its store in a function for the end of the program that it names before it loads libcurl, so that the function
// runs after the clean-up of libcurl's TLS library, as the destructors of static objects do.
TEST_F(StalledTransfer, EndsBeforeTheTlsLibraryIsCleanedUp) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  variables_.set("AWS_NO_SIGN_REQUEST", "true");
  const std::string address = object("a.tar", noise(1000));
  std::atomic<bool> asked = false;
  server_.answer(stalled_at_get(asked));
  const auto fetch_and_exit = [&] {
    static std::shared_ptr<Store> used;
    static fs::path folder;
    folder = folder_;
    std::atexit([] {
      fs::remove_all(folder);
      ::_exit(used->is_idle() ? 0 : 1);
    });
    use_settings(patient());
    used = store();
    used->fetch_ahead(address);
    asked.wait(false);
    std::exit(2);
  };
  EXPECT_EXIT(fetch_and_exit(), testing::ExitedWithCode(0), "");
}

TEST_F(Remote, AFolderThatCannotBeWrittenIsNamed) {
  CacheSettings wrong = settings();
  wrong.folder = config::OutputPath(write("file", "x"));
  EXPECT_EQ(error_of([&] { Store store(wrong); }), path("file") + " (data.cache.folder): cannot be written: Not a directory");
}

}  // namespace
}  // namespace tessera::remote
