// Tests tables in stores: Parquet files of which only the needed bytes are fetched, and lists with their images.

#include <algorithm>
#include <filesystem>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "src/data/data_fingerprint.h"
#include "src/data/formats/column_file.h"
#include "src/data/sources/filtered_source.h"
#include "src/data/sources/tables.h"
#include "tests/data/batches.h"
#include "tests/data/fake_source.h"
#include "tests/data/images.h"
#include "tests/data/temporary_folder.h"
#include "tests/remote/remote_fixture.h"

namespace tessera {
namespace {

class RemoteTables : public remote::Remote {
 protected:
  RemoteTables() {
    variables_.set("AWS_NO_SIGN_REQUEST", "true");
    start_anew(0);
  }
  ~RemoteTables() override { remote::use_settings({.size_mb = 1}); }

  /// Makes a new store, as a new process would.
  void start_anew(std::int64_t ahead) {
    remote::use_settings({.size_mb = 1});
    remote::CacheSettings settings = this->settings();
    settings.ahead = ahead;
    remote::use_settings(settings);
  }

  static std::string table_path(const std::string& name) { return std::string(TESSERA_TEST_DATA) + "/parquet/" + name; }

  /// Returns the texts of the requests for parts of objects or whole objects, and forgets them.
  std::multiset<std::string> fetched() {
    std::multiset<std::string> out;
    for (const std::string& text : server_.request_texts())
      if (text.starts_with("GET ") && text != "GET /b/") out.insert(text.substr(text.rfind('/') + 1));
    return out;
  }

  static Loader loader(const std::shared_ptr<const Source>& source, std::int64_t threads = 2) {
    const LoaderSettings settings = loader_settings(concat("{batch_size: 2, threads: ", threads, ", max_bad_share: 0.5}"));
    return {source, std::make_shared<ByteTokenizer>(), {.image_size = 8}, settings, {}, 5};
  }

  static void expect_same_samples(const IndexedSource& here, const IndexedSource& there) {
    ASSERT_EQ(there.size(), here.size());
    for (std::int64_t i = 0; i < here.size(); ++i) {
      const Sample a = here.get(i), b = there.get(i);
      EXPECT_EQ(a.encoded, b.encoded);
      EXPECT_EQ(a.captions, b.captions);
      EXPECT_EQ(a.fields, b.fields);
      EXPECT_EQ(a.label, b.label);
    }
  }
};

class RemoteParquet : public RemoteTables {
 protected:
  RemoteParquet() {
    for (const char* name : {"plain-0.parquet", "plain-1.parquet"}) object(concat("p/", name), io::read_file(table_path(name)));
  }
  void SetUp() override {
    if (!can_read_columns()) GTEST_SKIP() << "built without Arrow";
  }
  static std::shared_ptr<IndexedSource> source(const std::string& where) { return make_parquet(PathList{{where}}); }
};

TEST_F(RemoteParquet, RowsAreThoseOfLocalFiles) {
  const auto here = source(table_path("plain-{0,1}.parquet"));
  for (const std::string& where : Texts{"s3://b/p/", "s3://b/p/plain-*.parquet", server_.url() + "/b/p/plain-{0,1}.parquet"}) {
    SCOPED_TRACE(where);
    const auto there = source(where);
    expect_same_samples(*here, *there);
    EXPECT_EQ(there->group_starts(), here->group_starts());
    EXPECT_EQ(there->open_groups(), here->open_groups());
  }
  EXPECT_EQ(source("s3://b/p/")->name_of(25), "row 1 of s3://b/p/plain-1.parquet");
}

TEST_F(RemoteParquet, OnlyFootersAndNeededColumnsAreFetched) {
  const auto there = source("s3://b/p/");
  EXPECT_EQ(fetched(), (std::multiset<std::string>{"plain-0.parquet 0-16728", "plain-1.parquet 0-11769"}))
      << "the last 64 KiB, which usually hold the footer";
  there->get(9);
  EXPECT_EQ(fetched(), std::multiset<std::string>{"plain-0.parquet 3161-6375"}) << "the columns of a group are close to each other";
  there->get(10);
  EXPECT_TRUE(fetched().empty());
  start_anew(0);
  const auto again = source("s3://b/p/");
  again->get(9);
  EXPECT_TRUE(fetched().empty()) << "the pieces are in the cache";
}

TEST_F(RemoteParquet, AConfigurationAndASplitAreFoundByTheirNames) {
  object("h/photos/data/train-0.parquet", io::read_file(table_path("plain-0.parquet")));
  object("h/photos/test/0000.parquet", io::read_file(table_path("plain-1.parquet")));
  const auto open = [](const std::string& split) {
    ParquetSettings settings = PathList{{"s3://b/h/"}};
    settings.configuration = "photos";
    settings.split = split;
    return make_parquet(settings);
  };
  EXPECT_EQ(open("")->size(), 24);
  EXPECT_EQ(open("test")->name_of(1), "row 1 of s3://b/h/photos/test/0000.parquet");
  EXPECT_EQ(error_of([&] { open("dev"); }), "s3://b/h/: holds no .parquet files of the configuration photos and the split dev");
}

TEST_F(RemoteParquet, TheOrderIsThatOfLocalFilesAndResumesAreExact) {
  Loader here = loader(source(table_path("plain-{0,1}.parquet")));
  start_anew(2);
  Loader there = loader(source("s3://b/p/"));
  for (int i = 0; i < 30; ++i) EXPECT_EQ(there.next().keys, here.next().keys);
  expect_resumes([&](std::int64_t threads) { return loader(source("s3://b/p/"), threads); }, 50, 7, 5);
}

TEST_F(RemoteParquet, RowGroupsAreFetchedBeforeTheyAreRead) {
  start_anew(2);
  const auto there = source("s3://b/p/");
  EXPECT_EQ(there->read_ahead(), 16) << "two groups of eight rows";
  fetched();
  there->will_read(17);
  there->will_read(18);
  while (!remote::store()->is_idle()) std::this_thread::yield();
  EXPECT_EQ(fetched().size(), 1U);
  const remote::RemoteCounts before = remote::counts();
  there->get(17);
  EXPECT_TRUE(fetched().empty());
  EXPECT_EQ(remote::counts().misses, before.misses);
  there->will_read(20);
  EXPECT_TRUE(remote::store()->is_idle()) << "the group is in memory";
}

TEST_F(RemoteParquet, AFilterFetchesOnlyItsColumns) {
  const auto all = source("s3://b/p/plain-0.parquet");
  fetched();
  FilterSettings filter;
  filter.filter = "width >= 110";
  EXPECT_EQ(filtered(all, filter)->size(), 14);
  std::int64_t bytes = 0;
  for (const std::string& text : fetched()) {
    const std::string range = text.substr(text.find(' ') + 1);
    bytes += std::stol(range.substr(range.find('-') + 1)) - std::stol(range) + 1;
  }
  EXPECT_GT(bytes, 0);
  EXPECT_LT(bytes, 1000);
}

TEST_F(RemoteParquet, AChangedFileAndADamagedGroupAreTwoKindsOfErrors) {
  const auto there = source("s3://b/p/");
  std::string other = io::read_file(table_path("plain-0.parquet"));
  other[100] = static_cast<char>(other[100] ^ 1);
  object("p/plain-0.parquet", other);
  EXPECT_EQ(error_of([&] { there->get(3); }),
            "s3://b/p/plain-0.parquet: has changed since this process first saw it: start again, and write changed data under new names");
  object("p/damaged.parquet", io::read_file(table_path("damaged.parquet")));
  const auto damaged = source("s3://b/p/damaged.parquet");
  EXPECT_TRUE(keyed_error_of([&] { damaged->get(17); })
                  .starts_with("bad_row_group damaged.parquet:17: s3://b/p/damaged.parquet: row group 2 cannot be read: "));
  EXPECT_EQ(damaged->get(3).captions[0], "picture 3");
  object("p/page.parquet", "<!DOCTYPE html><html>no access</html>");
  EXPECT_TRUE(error_of([&] { source("s3://b/p/page.parquet"); })
                  .starts_with("s3://b/p/page.parquet: cannot be read as Parquet or Arrow: it begins"));
  EXPECT_EQ(error_of([&] { source("s3://b/p/none.parquet"); }), "s3://b/p/none.parquet: there is no such object");
}

TEST_F(RemoteParquet, ServersThatSendOnlyWholeFilesWork) {
  const std::string bytes = io::read_file(table_path("plain-1.parquet"));
  server_.answer([&](const remote::ServerRequest& request) -> std::optional<remote::ServerReply> {
    if (request.path != "/w/plain-1.parquet") return std::nullopt;
    return remote::ServerReply{.headers = {{"ETag", "\"x\""}}, .body = bytes};
  });
  expect_same_samples(*source(table_path("plain-1.parquet")), *source(server_.url() + "/w/plain-1.parquet"));
}

TEST_F(RemoteParquet, ArrowFilesAreFetchedAsAWhole) {
  for (const auto& entry : std::filesystem::directory_iterator(table_path("saved")))
    if (entry.path().extension() == ".arrow") object("a/" + entry.path().filename().string(), io::read_file(entry.path()));
  const auto here = source(table_path("saved"));
  Texts names;
  for (std::int64_t i = 0; i < here->data_file_count(); ++i) names.push_back("s3://b/a/" + here->data_file(i).name);
  expect_same_samples(*here, *make_parquet(PathList{names}));
}

TEST_F(RemoteParquet, RowsMayNameImagesBesideTheFile) {
  object("p/names.parquet", io::read_file(table_path("names.parquet")));
  for (const auto& entry : std::filesystem::directory_iterator(table_path("pictures")))
    object("p/pictures/" + entry.path().filename().string(), io::read_file(entry.path()));
  const auto here = source(table_path("names.parquet")), there = source("s3://b/p/names.parquet");
  EXPECT_EQ(there->get(0).encoded, here->get(0).encoded);
  EXPECT_TRUE(keyed_error_of([&] { there->get(2); }).starts_with("no_image names.parquet:2: s3://b/p/"));
}

class RemoteLists : public RemoteTables {
 protected:
  static constexpr int kImages = 24;

  RemoteLists() {
    std::string csv = "filepath,title\n", lines;
    for (int i = 0; i < kImages; ++i) {
      const std::string name = concat("images/", i, ".png");
      csv += concat(name, ",caption ", i, "\n");
      lines += concat("{\"image\": \"", name, "\", \"caption\": \"caption ", i, "\"}\n");
      if (i != 5) object("t/" + name, test::encode(test::noise(8, 9, static_cast<std::uint64_t>(i)), ".png"));
    }
    object("t/list.csv", csv);
    object("t/list.jsonl", lines);
  }
  static std::shared_ptr<IndexedSource> csv(const std::string& where) { return make_csv(PathList{{where}}); }
  std::string image(int i) const { return test::encode(test::noise(8, 9, static_cast<std::uint64_t>(i)), ".png"); }
};

TEST_F(RemoteLists, ImagesAreRelativeToTheList) {
  for (const auto& source :
       {csv("s3://b/t/list.csv"), make_json_lines(PathList{{"s3://b/t/*.jsonl"}}), csv(server_.url() + "/b/t/list.csv?x=1/2")}) {
    SCOPED_TRACE(source->describe());
    EXPECT_EQ(source->size(), kImages);
    EXPECT_EQ(source->get(7).encoded, image(7));
    EXPECT_EQ(source->get(7).captions, Texts{"caption 7"});
    EXPECT_TRUE(keyed_error_of([&] { source->get(5); }).starts_with("no_image images/5.png: ")) << keyed_error_of([&] { source->get(5); });
  }
}

TEST_F(RemoteLists, ListsMayNameRemoteImagesAndFolders) {
  write("list.csv", concat("filepath,title\ns3://b/t/images/1.png,a\n", server_.url(), "/b/t/images/2.png?size=8,b\nimages/3.png,c\n"));
  io::write_file((std::filesystem::create_directories(path("images")), path("images/3.png")), image(3));
  const auto mixed = csv(path("list.csv"));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(mixed->get(i).encoded, image(i + 1));
  CsvSettings settings = PathList{{"s3://b/u/list.csv"}};
  object("u/list.csv", "filepath,title\n4.png,a\n");
  settings.root = config::FilePath("s3://b/t/images");
  EXPECT_EQ(make_csv(settings)->get(0).encoded, image(4));
  object("u/none.csv", "filepath,title\nx.png,a\n");
  EXPECT_EQ(error_of([&] { csv("s3://b/u/none.csv"); }),
            "csv s3://b/u/none.csv: none of the first 1 images exists (the first: s3://b/u/x.png): check the folder of the images");
}

TEST_F(RemoteLists, ImagesAreFetchedBeforeTheyAreRead) {
  start_anew(1);
  const auto source = csv("s3://b/t/list.csv");
  EXPECT_EQ(source->read_ahead(), 16);
  fetched();
  source->will_read(3);
  source->will_read(3);
  while (!remote::store()->is_idle()) std::this_thread::yield();
  EXPECT_EQ(fetched(), std::multiset<std::string>{"3.png"});
  EXPECT_EQ(source->get(3).encoded, image(3));
  EXPECT_TRUE(fetched().empty());
  EXPECT_EQ(source->get(3).encoded, image(3));
  EXPECT_EQ(fetched(), std::multiset<std::string>{"3.png"}) << "no copy is kept";
}

TEST_F(RemoteLists, MissingImagesAreSkippedAndResumesAreExact) {
  start_anew(2);
  Loader from = loader(csv("s3://b/t/list.csv"));
  Texts keys;
  for (std::int64_t i = from.batches_per_epoch(); i > 0; --i) std::ranges::copy(from.next().keys, std::back_inserter(keys));
  EXPECT_EQ(std::ranges::count(keys, "images/5.png"), 0);
  EXPECT_EQ(from.statistics().skipped.at("no_image"), 1);
  expect_resumes([&](std::int64_t threads) { return loader(csv("s3://b/t/list.csv"), threads); }, 30, 7, 4);
}

TEST_F(RemoteLists, FingerprintsCoverTheListButAskForNoImage) {
  const DataFingerprint first = compute_fingerprint(*csv("s3://b/t/list.csv"));
  object("v/list.csv", "filepath,title\nimages/1.png,another\n");
  object("v/images/1.png", image(1));
  fetched();
  EXPECT_NE(compute_fingerprint(*csv("s3://b/v/list.csv")), first);
  EXPECT_EQ(fetched(), std::multiset<std::string>{"list.csv"});
}

TEST_F(RemoteLists, AFailingStoreEndsTheRun) {
  const auto source = csv("s3://b/t/list.csv");
  server_.answer([&](const remote::ServerRequest&) -> std::optional<remote::ServerReply> { return remote::ServerReply{.status = 403}; });
  EXPECT_EQ(error_of([&] { source->get(3); }),
            "s3://b/t/images/3.png: access is denied (HTTP 403): check the credentials, and their rights in the bucket");
}

}  // namespace
}  // namespace tessera
