#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/remote/client.h"

/// How the addresses hf:// of the Hugging Face Hub become requests to its server. `commit` is the commit of the address's revision.
namespace tessera::remote::hub {

/// Returns $HF_ENDPOINT, or https://huggingface.co, without a slash at the end.
std::string endpoint();

/// Returns the token of the user: $HF_TOKEN, or the content of the file $HF_TOKEN_PATH, $HF_HOME/token or ~/.cache/huggingface/token
/// ($XDG_CACHE_HOME). Empty if there is none.
std::string token();

/// Returns whether HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE forbids requests.
bool is_offline();

/// Returns whether the text is a commit, which never changes.
bool is_commit(const std::string& revision);

/// Returns the commit in the description of a revision; empty if it names none.
std::string parse_commit(const std::string& json);

std::string file_url(const Address& address, const std::string& commit);
/// Returns the URL of the description of a revision.
std::string revision_url(const Address& address);
/// Returns the URL of the list of the files in a folder, the address's key.
std::string tree_url(const Address& folder, const std::string& commit);
/// Returns the URL of the next page of the list at `url`; empty if this is the last one. The reply gives only its parameters, because a
/// mirror passes on the Hub's own URLs.
std::string next_page(const HttpReply& reply, const std::string& url);
/// Returns whether the reply to the request for a list says that the commit has no such folder.
bool says_no_folder(const HttpReply& reply);

using Files = std::vector<std::pair<std::string, ObjectState>>;  // by path
/// Parses a page of such a list. The version of a large file is its SHA-256. Throws UserError naming the URL if the text is none.
Files parse_tree(const std::string& json, const std::string& url);

/// Throws the error of a reply that is no success.
[[noreturn]] void fail(const std::string& address, const HttpReply& reply);

/// Files and commits as the Hub has described them, in a folder. With them, files that are in the cache can be read without a request.
class Descriptions {
 public:
  explicit Descriptions(std::string folder) : folder_(std::move(folder)) {}

  /// Returns the commit that the revision had when it was last looked up; empty if it never was.
  std::string commit(const Address& address) const;
  void keep_commit(const Address& address, const std::string& commit) const;
  /// Returns the files of a folder; nullopt if they are not known.
  std::optional<Files> files(const Address& folder, const std::string& commit) const;
  void keep_files(const Address& folder, const std::string& commit, const Files& files) const;

 private:
  std::string path_of(const std::string& key) const;
  std::string folder_;
};

}  // namespace tessera::remote::hub
