// Tests the addresses hf:// against a server with the paths of the Hugging Face Hub, which sends large files from another server.

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/base/digest.h"
#include "src/remote/local_copy.h"
#include "tests/remote/remote_fixture.h"
#include "tests/support/error_of.h"

namespace tessera::remote {
namespace {

using Json = nlohmann::json;
using Reply = std::optional<ServerReply>;

const std::string kFirst(40, 'a'), kSecond(40, 'b');

/// The Hub has files by repository (models/OWNER/NAME or datasets/OWNER/NAME) and commit. Files named *.safetensors, *.tar and *.parquet
/// are large: the Hub leads to the other server for them.
class Hub : public Remote {
 protected:
  Hub() {
    for (const char* name : {"HF_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HOME", "XDG_CACHE_HOME"}) variables_.set(name, "");
    variables_.set("HF_TOKEN_PATH", path("token"));
    variables_.set("HF_ENDPOINT", server_.url() + "/");
    server_.answer([this](const ServerRequest& request) { return answer(request); });
    large_.answer([this](const ServerRequest& request) -> Reply {
      if (!request.header("authorization").empty()) return ServerReply{.status = 400, .body = "the token was sent to another server"};
      return std::nullopt;
    });
    use_settings(settings());
  }
  ~Hub() override { use_settings({.size_mb = 1}); }

  void file(const std::string& repository, const std::string& name, const std::string& bytes) {
    files_[repository][name] = bytes;
    if (is_large(name)) large_.put("/large/" + sha256(bytes), bytes);
  }
  static bool is_large(const std::string& name) {
    return name.ends_with(".safetensors") || name.ends_with(".tar") || name.ends_with(".parquet") || name.ends_with(".bin");
  }
  static ServerReply failure(int status, const std::string& code) { return {.status = status, .headers = {{"X-Error-Code", code}}}; }

  Reply answer(const ServerRequest& request) {
    if (!token_.empty() && request.header("authorization") != "Bearer " + token_) return failure(401, "RepoNotFound");
    for (const auto& [repository, files] : files_) {
      const std::string api = "/api/" + repository, plain = repository.starts_with("models/") ? repository.substr(7) : repository;
      if (request.path.starts_with(api + "/revision/")) {
        const std::string revision = request.path.substr(api.size() + 10);
        if (gated_) return failure(403, "GatedRepo");
        if (revision != "main" && revision != "v1/x") return failure(404, "RevisionNotFound");
        return ServerReply{.body = Json{{"sha", commit_}}.dump()};
      }
      if (const std::string tree = concat(api, "/tree/", commit_); request.path.starts_with(tree)) return page(request, files, tree);
      if (const std::string begin = concat("/", plain, "/resolve/", commit_, "/"); request.path.starts_with(begin)) {
        const auto found = files.find(request.path.substr(begin.size()));
        if (found == files.end()) return failure(404, "EntryNotFound");
        if (!is_large(found->first)) return ServerReply{.headers = {{"ETag", "\"" + git_id(found->second) + "\""}}, .body = found->second};
        const std::string digest = sha256(wrong_link_ ? found->second + "x" : found->second);
        return ServerReply{.status = 302,
                           .headers = {{"Location", concat(large_.url(), "/large/", sha256(found->second))},
                                       {"X-Linked-Etag", "\"" + digest + "\""},
                                       {"X-Repo-Commit", commit_}}};
      }
    }
    return failure(404, "RepoNotFound");
  }

  // Returns two entries of the list of a folder's files and folders.
  ServerReply page(const ServerRequest& request, const std::map<std::string, std::string>& files, const std::string& tree) const {
    const std::string folder = request.path == tree ? "" : request.path.substr(tree.size() + 1) + "/";
    std::map<std::string, Json> entries;
    for (const auto& [name, bytes] : files) {
      if (!name.starts_with(folder)) continue;
      const std::size_t slash = name.find('/', folder.size());
      const std::string path = name.substr(0, slash);
      if (slash != std::string::npos)
        entries[path] = {{"type", "directory"}, {"path", path}, {"oid", "x"}, {"size", 0}};
      else if (is_large(name))
        entries[path] = {{"type", "file"}, {"path", path}, {"oid", "x"}, {"size", bytes.size()}, {"lfs", {{"oid", sha256(bytes)}}}};
      else
        entries[path] = {{"type", "file"}, {"path", path}, {"oid", git_id(bytes)}, {"size", bytes.size()}};
    }
    if (entries.empty()) return failure(404, "EntryNotFound");
    const std::size_t from = request.query.empty() ? 0 : std::stoul(request.query.substr(request.query.find('=') + 1));
    Json out = Json::array();
    std::size_t at = 0;
    for (const auto& [path, entry] : entries)
      if (at++ >= from && at <= from + 2) out.push_back(entry);
    ServerReply reply{.body = out.dump()};
    // A mirror passes on the links of the Hub itself.
    if (entries.size() > from + 2)
      reply.headers["Link"] = concat("<https://huggingface.co", request.path, "?cursor=", from + 2, ">; rel=\"next\"");
    return reply;
  }
  static std::string git_id(const std::string& bytes) { return sha256(bytes).substr(0, 40); }

  Texts names_in(const std::string& folder) const {
    Texts out;
    for (const auto& entry : fs::directory_iterator(folder)) out.push_back(entry.path().filename().string());
    std::ranges::sort(out);
    return out;
  }

  FakeServer large_;
  std::map<std::string, std::map<std::string, std::string>> files_;
  std::string commit_ = kFirst, token_;
  bool gated_ = false, wrong_link_ = false;
};

TEST_F(Hub, AddressesNameRepositoryRevisionAndPath) {
  const auto parsed = [](const std::string& text) {
    const Address out = parse_address(text);
    return concat(out.host, " ", out.revision, " ", out.key);
  };
  EXPECT_EQ(parsed("hf://o/n"), "o/n main ");
  EXPECT_EQ(parsed("hf://models/o/n/a/b.c"), "o/n main a/b.c");
  EXPECT_EQ(parsed("hf://datasets/o/n@v1/a/"), "datasets/o/n v1 a/");
  EXPECT_EQ(parsed("hf://o/n@v1%2Fx/a"), "o/n v1/x a");
  EXPECT_EQ(parsed("hf://o/n@refs/pr/3/a"), "o/n refs/pr/3 a");
  EXPECT_EQ(parsed("hf://datasets/o/n@refs/convert/parquet/default/0.parquet"), "datasets/o/n refs/convert/parquet default/0.parquet");
  for (const char* wrong : {"hf://o", "hf://datasets/o", "hf:///n", "hf://o/@main", "hf://"})
    EXPECT_EQ(error_of([&] { parse_address(wrong); }),
              concat(wrong, ": expected hf://OWNER/NAME or hf://datasets/OWNER/NAME, with @REVISION and /PATH as needed"));
}

TEST_F(Hub, FilesComeFromTheHubOrFromAnotherServerWithoutTheToken) {
  token_ = "secret";
  variables_.set("HF_TOKEN", "secret");
  const std::string bytes = noise(20 << 20);
  file("datasets/o/n", "a b/x.tar", bytes);
  file("datasets/o/n", "a b/note.txt", "small");
  EXPECT_EQ(io::read_file(store()->open("hf://datasets/o/n/a b/note.txt").path()), "small");
  EXPECT_EQ(io::read_file(store()->open("hf://datasets/o/n/a b/x.tar").path()), bytes);
  EXPECT_EQ(store()->read("hf://datasets/o/n@v1%2Fx/a b/x.tar", 5, 7), bytes.substr(5, 7));
  const Lease copy = store()->open({"hf://datasets/o/n@v1%2Fx/a b/x.tar", 100, 50});
  EXPECT_EQ(copy.first(), 0U) << "the copy of the whole file, which is the same in both revisions";
  fs::remove(copy.path());
  const Lease piece = store()->open({"hf://datasets/o/n@v1%2Fx/a b/x.tar", 100, 50});
  EXPECT_EQ(piece.first(), 100U);
  EXPECT_EQ(io::read_file(piece.path()), bytes.substr(100, 50));
}

TEST_F(Hub, TheTokenMayBeInAFile) {
  token_ = "filed";
  write("token", "filed\n");
  file("models/o/n", "config.json", "{}");
  EXPECT_EQ(store()->look_up("hf://o/n/config.json").size, 2U);
}

TEST_F(Hub, NamesStandForTheFilesOfFoldersWildcardsAndSplits) {
  const Texts train = {"data/train-0.parquet", "data/train-1.parquet", "data/train-2.parquet"};
  for (const std::string& name : train) file("datasets/o/n", name, name);
  for (const char* name : {"data/test-0.parquet", "data/x.txt", "a.tar"}) file("datasets/o/n", name, name);
  const std::string base = "hf://datasets/o/n/data/";
  Texts found = store()->expand(base, ".parquet");
  EXPECT_EQ(found.front(), base + "test-0.parquet");
  found.erase(found.begin());
  EXPECT_EQ(found, (Texts{base + "train-0.parquet", base + "train-1.parquet", base + "train-2.parquet"}));
  EXPECT_EQ(store()->expand(base + "t*-0.parquet", ".parquet"), (Texts{base + "test-0.parquet", base + "train-0.parquet"}));
  EXPECT_EQ(store()->expand("hf://datasets/o/n", ".parquet"), found);
  EXPECT_EQ(store()->expand("hf://datasets/o/n@main/", ".tar"), Texts{"hf://datasets/o/n@main/a.tar"});
  EXPECT_EQ(error_of([] { store()->expand("hf://datasets/o/n", ".arrow"); }), "hf://datasets/o/n/: holds no .arrow files");
  EXPECT_EQ(error_of([&] { store()->look_up(base + "y.txt"); }),
            base + "y.txt: there is no such file (revision main); the name of a folder ends in /");
  server_.requests();
  store()->look_up_all(store()->expand(base, ".parquet"));
  EXPECT_TRUE(server_.requests().empty()) << "one list of a folder is enough";
}

TEST_F(Hub, AProcessReadsOneCommit) {
  file("models/o/n", "config.json", "first");
  EXPECT_EQ(io::read_file(store()->open("hf://o/n/config.json").path()), "first");
  file("models/o/n", "other.json", "of the first");
  commit_ = kSecond;
  server_.requests();
  EXPECT_EQ(error_of([] { store()->open("hf://o/n/other.json"); }),
            "hf://o/n/other.json: there is no such file (revision main); the name of a folder ends in /");
  EXPECT_TRUE(server_.requests().empty());
  use_settings({.size_mb = 1});
  use_settings(settings());
  EXPECT_EQ(io::read_file(store()->open("hf://o/n/other.json").path()), "of the first");
  EXPECT_EQ(io::read_file(store()->open(concat("hf://o/n@", kSecond, "/config.json")).path()), "first");
}

TEST_F(Hub, WrongBytesAreNotUsed) {
  file("models/o/n", "model.safetensors", "right");
  large_.answer([](const ServerRequest&) -> Reply { return ServerReply{.body = "wrong"}; });
  EXPECT_EQ(error_of([] { store()->open("hf://o/n/model.safetensors"); }),
            concat("hf://o/n/model.safetensors: the bytes that arrive are not those of the object: their SHA-256 is not ", sha256("right"),
                   ", 3 times: look for a proxy or a disk that damages data"));
  wrong_link_ = true;
  EXPECT_EQ(error_of([] { store()->open("hf://o/n/model.safetensors"); }),
            "hf://o/n/model.safetensors: has changed since this process first saw it: start again, and write changed data under new names");
}

TEST_F(Hub, ErrorsSayWhatToDo) {
  EXPECT_EQ(error_of([] { store()->look_up("hf://o/none/a"); }),
            "hf://o/none: does not exist, or is private: check the name, or set HF_TOKEN to a token that may read it");
  file("models/o/n", "a", "x");
  EXPECT_EQ(error_of([] { store()->look_up("hf://o/n@v2/a"); }), "hf://o/n: has no branch, tag or commit v2");
  gated_ = true;
  EXPECT_EQ(error_of([] { store()->look_up("hf://o/n/a"); }),
            concat("hf://o/n: is gated: accept its conditions at ", server_.url(),
                   "/o/n, and set HF_TOKEN to a token of that account that may read it"));
  gated_ = false;
  server_.answer([](const ServerRequest&) -> Reply {
    return ServerReply{.status = 403, .headers = {{"X-Error-Message", "this token cannot read it"}}};
  });
  EXPECT_EQ(error_of([] { store()->look_up("hf://o/n/a"); }),
            "hf://o/n/a: access is denied (HTTP 403: this token cannot read it): set HF_TOKEN to a token that may read it");
  server_.answer([this](const ServerRequest& request) -> Reply {
    return request.path.find("/tree/") == std::string::npos ? answer(request) : ServerReply{.body = "<html>"};
  });
  EXPECT_EQ(error_of([] { store()->look_up("hf://o/n/x/a"); }),
            concat(server_.url(), "/api/models/o/n/tree/", kFirst, "/x: expected a list of files, got <html>"));
  server_.answer([this](const ServerRequest& request) { return answer(request); });
  use_settings({.size_mb = 1});  // forgets the commit
  use_settings(settings());
  token_ = "right";
  variables_.set("HF_TOKEN", "wrong");
  EXPECT_EQ(error_of([] { store()->look_up("hf://o/n/a"); }),
            "hf://o/n: does not exist, or your token (HF_TOKEN, or the file that hf auth login wrote) may not read it");
}

TEST_F(Hub, OfflineOnlyTheCacheIsRead) {
  file("models/o/n", "a.json", "{}");
  file("models/o/n", "b.json", "[]");
  store()->open("hf://o/n/a.json");
  use_settings({.size_mb = 1});
  use_settings(settings());
  variables_.set("HF_HUB_OFFLINE", "1");
  server_.requests();
  EXPECT_EQ(io::read_file(store()->open("hf://o/n/a.json").path()), "{}");
  const std::string end =
      concat(": is not in the cache (", path("cache"),
             "), and HF_HUB_OFFLINE forbids requests: unset it, or copy the cache from a machine that has read the files");
  EXPECT_EQ(error_of([] { store()->open("hf://o/n/b.json"); }), "hf://o/n/b.json" + end);
  EXPECT_EQ(error_of([] { store()->open("hf://o/other/b.json"); }), "hf://o/other/b.json" + end);
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(Hub, OfflineDataWithoutFolderAndRunsAreReadFromTheCache) {
  file("datasets/o/n", "train-0.parquet", "x");
  for (const char* name : {"model.safetensors", "manifest.json"}) file("models/o/run", concat("checkpoints/step_0000100/", name), name);
  file("models/o/run", "checkpoints/latest", "step_0000100\n");
  const auto both = [] { return store()->expand("hf://datasets/o/n", ".parquet")[0] + " " + local_copy("hf://o/run"); };
  const std::string before = both();
  use_settings({.size_mb = 1});
  use_settings(settings());
  variables_.set("HF_HUB_OFFLINE", "1");
  server_.requests();
  EXPECT_EQ(both(), before);
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(Hub, TheEndpointMayHaveAPath) {
  const std::string at = "/api/hub";
  variables_.set("HF_ENDPOINT", server_.url() + at);
  for (const char* name : {"a", "b", "c"}) file("models/o/n", name, name);
  server_.answer([=, this](ServerRequest request) -> Reply {
    if (!request.path.starts_with(at)) return ServerReply{.status = 500};
    request.path.erase(0, at.size());
    Reply reply = answer(request);
    if (std::string& link = reply->headers["Link"]; !link.empty()) link.replace(1, link.find("/api/") - 1, server_.url() + at);
    return reply;
  });
  EXPECT_EQ(store()->list("hf://o/n/"), (Texts{"hf://o/n/a", "hf://o/n/b", "hf://o/n/c"}));
}

TEST_F(Hub, ModelsAreFetchedWithoutPickledWeights) {
  for (const char* name : {"config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                           "model.safetensors.index.json", "pytorch_model.bin", "README.md", "tokenizer.json", "vocab.txt",
                           "onnx/model.onnx"})
    file("models/o/n", name, name);
  const std::string copy = local_copy("hf://o/n");
  EXPECT_EQ(names_in(copy), (Texts{"config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                                   "model.safetensors.index.json", "tokenizer.json", "vocab.txt"}));
  EXPECT_EQ(fs::path(copy).filename().string().substr(16), "-n");
  variables_.set("HF_HUB_OFFLINE", "1");
  EXPECT_EQ(local_copy("hf://o/n"), copy);
}

TEST_F(Hub, PickledWeightsMustBeNamed) {
  for (const char* name : {"config.json", "pytorch_model.bin"}) file("models/o/n", name, name);
  EXPECT_EQ(error_of([] { local_copy("hf://o/n"); }),
            "hf://o/n: has no weights in .safetensors files, only pickled ones: if you trust the author, name the file: "
            "hf://o/n/pytorch_model.bin");
  EXPECT_EQ(names_in(local_copy("hf://o/n/pytorch_model.bin")), (Texts{"config.json", "pytorch_model.bin"}));
  file("models/o/m", "config.json", "{}");
  EXPECT_EQ(error_of([] { local_copy("hf://o/m"); }),
            "hf://o/m/: holds neither weights nor checkpoints/latest: expected a model file, a published model, a checkpoint or a run");
}

}  // namespace
}  // namespace tessera::remote
