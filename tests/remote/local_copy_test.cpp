// Tests that models in stores become local files and folders.

#include "src/remote/local_copy.h"

#include <fcntl.h>
#include <sys/file.h>

#include <gtest/gtest.h>

#include "tests/remote/remote_fixture.h"
#include "tests/support/error_of.h"

namespace tessera::remote {
namespace {

/// The store of the process is that of the test's server and cache.
class LocalCopies : public Remote {
 protected:
  LocalCopies() {
    variables_.set("AWS_NO_SIGN_REQUEST", "true");
    use_settings(settings());
  }

  /// Adds objects to a folder, each with its own address as content.
  void folder(const std::string& at, const Texts& names) {
    for (const std::string& name : names) object(at + name, "s3://b/" + at + name);
  }
  /// Returns the names of the files in a local folder, after a check of their content.
  Texts names_in(const std::string& copy, const std::string& at) const {
    Texts out;
    for (const auto& entry : fs::directory_iterator(copy)) {
      out.push_back(entry.path().filename().string());
      EXPECT_EQ(io::read_file(entry.path()), "s3://b/" + at + out.back());
    }
    std::ranges::sort(out);
    return out;
  }
};

TEST_F(LocalCopies, LocalNamesStayAsTheyAre) {
  EXPECT_EQ(local_copy("runs/a"), "runs/a");
  EXPECT_EQ(local_copy(""), "");
  EXPECT_TRUE(server_.requests().empty());
  config::FilePath missing("no/such/file");
  missing.origin = "a.yaml:3: start.weights";
  EXPECT_EQ(error_of([&] { local_copy_of(missing); }), "a.yaml:3: start.weights: no/such/file: no such file or folder");
  missing.name = "s3://b/none.safetensors";
  EXPECT_EQ(error_of([&] { local_copy_of(missing); }),
            "a.yaml:3: start.weights: s3://b/none.safetensors: there is no such object");
}

TEST_F(LocalCopies, AFileKeepsItsName) {
  const std::string address = object("m/model.safetensors", "weights");
  object("m/other.safetensors", "other");
  const std::string copy = local_copy(address);
  EXPECT_EQ(fs::path(copy).filename(), "model.safetensors");
  EXPECT_EQ(io::read_file(copy), "weights");
  EXPECT_EQ(files().size(), 1U);
  server_.put("/x/net.pt", "pickled");
  const std::string from_web = local_copy(server_.url() + "/x/net.pt?version=1/2");
  EXPECT_EQ(fs::path(from_web).filename(), "net.pt");
  EXPECT_EQ(io::read_file(from_web), "pickled");
}

TEST_F(LocalCopies, OpenClipFilesComeWithTheirDescription) {
  folder("m/", {"net.safetensors", "other.safetensors", "open_clip_config.json", "tokenizer.json", "picture.png"});
  const std::string copy = local_copy("s3://b/m/net.safetensors");
  EXPECT_EQ(names_in(fs::path(copy).parent_path(), "m/"),
            (Texts{"net.safetensors", "open_clip_config.json", "tokenizer.json"}));
}

TEST_F(LocalCopies, PublishedFoldersAreFetchedWithoutWeightsInOtherFormats) {
  folder("m/", {"config.json", "model.safetensors", "pytorch_model.bin", "tf_model.h5", "vocab.json", "merges.txt",
                "README.md"});
  const std::string copy = local_copy("s3://b/m/");
  EXPECT_EQ(names_in(copy, "m/"), (Texts{"config.json", "merges.txt", "model.safetensors", "vocab.json"}));
  EXPECT_EQ(fs::path(copy).filename().string().substr(16), "-m");
  folder("old/", {"config.json", "pytorch_model.bin", "tf_model.h5"});
  EXPECT_EQ(names_in(local_copy("s3://b/old"), "old/"), (Texts{"config.json", "pytorch_model.bin"}));
  server_.requests();
  EXPECT_EQ(local_copy("s3://b/m"), copy);
  for (const std::string& text : server_.request_texts())
    EXPECT_EQ(text, "GET /b/") << "only listings, because the copies are current";
}

TEST_F(LocalCopies, OfARunTheModelOfItsLatestOrBestCheckpointIsFetched) {
  for (const char* step : {"step_0000100", "step_0000200"})
    folder(concat("run/checkpoints/", step, "/"),
           {"ema.safetensors", "manifest.json", "model.safetensors", "state.safetensors"});
  folder("run/", {"config.yaml", "metrics.jsonl"});
  object("run/checkpoints/latest", "step_0000200\n");
  object("run/checkpoints/best", "step_0000100 a.b max 0.5\n");
  for (const char* name :
       {"run", "run/", "run/checkpoints", "run/checkpoints/latest", "run/checkpoints/step_0000200"}) {
    SCOPED_TRACE(name);
    EXPECT_EQ(names_in(local_copy(concat("s3://b/", name)), "run/checkpoints/step_0000200/"),
              Texts{"model.safetensors"});
  }
  EXPECT_EQ(names_in(local_copy("s3://b/run/checkpoints/best"), "run/checkpoints/step_0000100/"),
            Texts{"model.safetensors"});
  EXPECT_EQ(names_in(local_copy("s3://b/run", Wanted::everything), "run/checkpoints/step_0000200/").size(), 4U);
  EXPECT_EQ(io::read_file(local_copy("s3://b/run/checkpoints/step_0000100/ema.safetensors")),
            "s3://b/run/checkpoints/step_0000100/ema.safetensors");
  object("run/checkpoints/latest", "step_0000300\n");
  EXPECT_EQ(
      error_of([] { local_copy("s3://b/run"); }),
      "s3://b/run/checkpoints/latest: names step_0000300, which the store does not have: name another checkpoint");
  EXPECT_EQ(error_of([] { local_copy("s3://b/nothing"); }),
            "s3://b/nothing/: holds neither weights nor checkpoints/latest: expected a model file, a published model, "
            "a checkpoint or a run");
}

TEST_F(LocalCopies, ARunMayNameItsNextCheckpointMeanwhile) {
  for (const char* step : {"step_0000100", "step_0000200"}) folder(concat("run/checkpoints/", step, "/"), {"model.safetensors"});
  object("run/checkpoints/latest", "step_0000100\n");
  server_.answer([this](const ServerRequest& request) -> std::optional<ServerReply> {
    if (request.path.ends_with("/latest")) object("run/checkpoints/latest", "step_0000200\n");
    return std::nullopt;
  });
  EXPECT_EQ(names_in(local_copy("s3://b/run"), "run/checkpoints/step_0000200/"), Texts{"model.safetensors"});
}

TEST_F(LocalCopies, AModelThatIsAskedForManyTimesCountsOnce) {
  for (const char* name : {"a", "c"}) folder(concat(name, "/"), {"model.safetensors"});
  const std::string first = local_copy("s3://b/a") + "/model.safetensors";
  for (int i = 0; i < 20; ++i) local_copy("s3://b/c");
  const OpenFile file(::open(first.c_str(), O_RDONLY));
  EXPECT_NE(::flock(file.descriptor(), LOCK_EX | LOCK_NB), 0) << "nobody may delete it";
}

TEST_F(LocalCopies, TheCacheMayBeARelativeFolder) {
  const std::string address = object("m/model.safetensors", "weights");
  const fs::path before = fs::current_path();
  CacheSettings relative = settings();
  relative.folder = config::OutputPath("cache");
  Texts copies;
  for (const char* folder : {"one", "two"}) {
    if (copies.empty())
      fs::create_directories(path(folder));
    else
      fs::copy(path("one"), path(folder), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    fs::current_path(path(folder));
    use_settings(settings());
    use_settings(relative);
    copies.push_back(fs::canonical(local_copy(address)));
  }
  fs::current_path(before);
  use_settings(settings());
  EXPECT_TRUE(copies[0].starts_with(fs::canonical(path("one")).string())) << copies[0];
  EXPECT_TRUE(copies[1].starts_with(fs::canonical(path("two")).string())) << copies[1];
}

TEST_F(LocalCopies, AChangedModelIsFetchedAgain) {
  object("m/config.json", "{}");
  object("m/model.safetensors", "first");
  const std::string before = local_copy("s3://b/m");
  object("m/model.safetensors", "second");
  const std::string after = local_copy("s3://b/m");
  EXPECT_NE(before, after);
  EXPECT_EQ(io::read_file(before + "/model.safetensors"), "first");
  EXPECT_EQ(io::read_file(after + "/model.safetensors"), "second");
}

TEST_F(LocalCopies, FoldersOfDeletedCopiesAreRemoved) {
  const Cache& cache = store()->cache();
  const std::string kept = write("kept", "x"), gone = write("gone", "y");
  const std::string first = cache.link_folder("m", {{"a", kept}}),
                    second = cache.link_folder("m", {{"a", kept}, {"b", gone}});
  EXPECT_EQ(io::read_file(second + "/b"), "y");
  fs::remove(gone);
  fs::create_directories(path("cache/models/.new/left"));
  EXPECT_EQ(cache.link_folder("m", {{"a", kept}}), first);
  EXPECT_FALSE(fs::exists(second));
  EXPECT_FALSE(fs::exists(path("cache/models/.new")));
}

}  // namespace
}  // namespace tessera::remote
