#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/data/formats/byte_stream.h"
#include "src/data/sources/webdataset/webdataset.h"
#include "src/io/tar.h"
#include "src/remote/store.h"
#include <tessera/data/source.h>

namespace tessera {

/// A file of a sample in a shard.
struct ShardMember {
  std::string name;  // the part after the first dot, in lower case
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

struct ShardSample {
  std::uint32_t shard = 0;
  std::string key;
  std::vector<ShardMember> members;

  const ShardMember* find(const std::string& name) const;
};

/// Irregularities of shards that are read all the same. Collects how many there are of each kind, and where the first one is.
class ShardRemarks {
 public:
  /// Notes what is unusual about a shard with this number of samples.
  void note(const std::string& shard, const io::TarIndex& tar, std::int64_t samples);
  void add(const std::string& kind, const std::string& first);
  /// Returns one line for each kind. `shards` is the number of all shards.
  std::vector<std::string> lines(std::size_t shards) const;

 private:
  std::map<std::string, std::pair<std::int64_t, std::string>> kinds_;  // number and first one
};

/// All samples of some tar shards, and the irregularities found in these shards.
struct ShardIndex {
  std::vector<std::string> paths;
  std::vector<ShardSample> samples;
  std::map<std::string, std::int64_t> names;  // member name -> number of samples that have it
  std::vector<std::string> problems;          // one line for each damaged shard
  ShardRemarks remarks;
};

/// Splits a member's path at the first dot of its file name: "a/b.seg.png" -> "a/b" and "seg.png". Returns false for file names
/// that have no dot or start with one, and for WebDataset's own meta files ("__x__").
bool split_member_path(const std::string& path, std::string& key, std::string& name);

/// Returns the name with the letters A to Z in lower case, as members are named.
std::string as_member_name(std::string name);

/// Indexes the shards in parallel. Reads the tar headers, or takes the indices stored in `cache` (see IndexCache).
ShardIndex index_shards(const std::vector<std::string>& paths, const std::string& cache = "off");

/// The files of one sample of a shard, from an index or a stream, as a row.
class ShardRow : public Row {
 public:
  ShardRow(std::string of, std::string name) : shard(std::move(of)), key(std::move(name)) {}
  virtual bool has(const std::string& name) const = 0;
  /// Returns the bytes of a member, which must exist. Throws SampleError if they cannot be read.
  virtual std::string read(const std::string& name) const = 0;

  nlohmann::json value(const std::string& name) const override;
  std::optional<std::string> text(const std::string& name) const override;
  std::optional<std::string> file(const std::string& name, const char* missing) const override;
  const nlohmann::json* side() const override;
  std::string bad_side() const override;

  const std::string shard, key;
  bool splits_lines = false;  // whether value() makes each line of a member a text of its own
  const std::vector<std::string>* npy_fields = nullptr;  // WebDatasetSettings::npy_fields; null: none

 private:
  const nlohmann::json& json() const;  // the json member, parsed at the first use; null if there is none
  mutable std::optional<nlohmann::json> json_;
};

/// Adds the numbers of a member npy to a sample's fields under these names. `fields` is null or an object; anything else is left as it is.
/// Throws SampleError `bad_fields` if there is not one name for each number.
void add_npy_fields(const std::vector<std::string>& names, std::string_view npy, nlohmann::json& fields);

/// Makes samples from the rows of shards.
class ShardMapper {
 public:
  /// Searches for classes.txt next to `first_shard`, unless `first_shard` is empty.
  ShardMapper(const WebDatasetSettings& settings, const std::string& first_shard);

  /// Makes the sample of a row; any field may be missing, even the image. Only masks, depths and region features are decoded. Throws
  /// SampleError naming shard and key if members are damaged.
  Sample load(ShardRow&& row) const;
  /// Returns the captions that load() would return, reading only texts. Throws as load() does, except for errors about images.
  std::vector<std::string> captions(ShardRow&& row) const;
  /// Returns the number of captions that captions() would return. Reads members only if their names do not determine this number.
  std::int64_t count_captions(ShardRow&& row) const;
  const std::vector<std::string>& classes() const { return rows_.classes(); }
  std::string describe(const std::vector<std::string>& needed) const { return describe_rows(rows_.settings(), classes().size(), needed); }

 private:
  // Calls read(row, sample) and returns the sample.
  template <class Read>
  Sample read(ShardRow& row, const Read& read) const;

  RowMapper rows_;
  bool caption_lines_;
  std::vector<std::string> npy_fields_;
};

/// A tar file to read. A remote one is fetched as a whole, and its local copy exists as long as this object; or, if `whole` is false and
/// nobody has announced that its samples will be read (Source::will_read), only the bytes to read are fetched.
class ShardFile {
 public:
  ShardFile(const std::string& address, bool whole) : address_(address) {
    if (!remote::is_remote(address))
      file_.emplace(address);
    else if (whole || remote::store()->expects(address))
      file_.emplace(copy_.emplace(remote::store()->open(address)).path());
  }
  /// As RandomAccessFile::read().
  std::string read(std::uint64_t offset, std::uint64_t size) const {
    return file_ ? file_->read(offset, size) : remote::store()->read(address_, offset, size);
  }

 private:
  const std::string address_;
  std::optional<remote::Lease> copy_;
  std::optional<io::RandomAccessFile> file_;
};

/// Stores the indices of tar files for the next start. An index is valid as long as its tar has the same size and modification time or, if
/// the tar is remote, the same size and ETag. A stored index that is damaged or has another version is made again. Several threads,
/// processes and machines may use the same folder at once, because the file of an index appears there only when it is complete.
class IndexCache {
 public:
  /// `setting` is where to store indices. "beside" means SHARD.tar.index next to the shard, or, if that cannot be written, tessera/index in
  /// the user's cache folder ($XDG_CACHE_HOME, ~/.cache); for remote shards, the store's index_folder(). "off" means nowhere. Any other
  /// text is a folder, which is created if necessary.
  explicit IndexCache(std::string setting);

  using Make = std::function<io::TarIndex(const std::string& path)>;
  /// Returns the stored index, or calls `make` and stores its result. `make` gets the path of a local file or of a remote one's copy. The
  /// index of a damaged tar is not stored. Neither is the index of a local tar that changed within the last seconds, because another change
  /// might leave the same modification time. Throws what `make` throws; a failure to store the index is not an error.
  io::TarIndex index(const std::string& path, const Make& make = io::index_tar) const;

 private:
  std::string setting_;
  mutable std::atomic<bool> reported_ = false;
};

/// Reads the members of a tar in order, from a stream.
class TarStream {
 public:
  explicit TarStream(std::unique_ptr<ByteStream> bytes) : bytes_(std::move(bytes)) {}

  /// Advances to the next plain file and writes its name, offset and size to `member`. Skips the unread rest of the previous file. At the
  /// end of the stream, returns false; another archive may follow the end of an archive (cat a.tar b.tar). Throws StreamError if the stream
  /// is not a tar, is truncated or is damaged.
  bool next(io::TarMember& member);

  /// Returns the bytes of the current file.
  std::string content();

  /// As in io::TarIndex, for the stream so far.
  bool joined() const { return joined_; }
  std::uint64_t ignored() const { return ignored_; }
  /// Returns the name of the first plain file; empty before it.
  const std::string& first_member() const { return first_; }

 private:
  std::string take(std::uint64_t size);
  std::uint64_t skip(std::uint64_t most);
  void pass_over_content();

  std::unique_ptr<ByteStream> bytes_;
  std::uint64_t at_ = 0;
  std::uint64_t content_ = 0, filling_ = 0;  // unread bytes of the current member, and of the padding after it
  std::string name_, first_;
  bool ended_ = false;  // whether an archive has just ended
  bool joined_ = false;
  std::uint64_t ignored_ = 0;
};

/// Returns true if the address is a command ("pipe:...") or has the name of a compressed tar.
bool is_stream(const std::string& address);

/// Returns a shard as a DataFile for the data set's fingerprint. The DataFile's name is the file name, or the whole command.
DataFile shard_file(const std::string& address);

/// Expands the shards that a user names, as expand_paths does, including commands with braces ("pipe:cat {0..9}.tar"). A folder stands for
/// its .tar files or, if it has none, for its .tar.gz or .tgz files.
std::vector<std::string> expand_shards(const PathList& paths);

}  // namespace tessera
