#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <tessera/config/registry.h>
#include <tessera/data/mixing.h>
#include <tessera/sample.h>

namespace tessera {

class IndexedSource;
class StreamSource;

/// The possible kinds of a source. The list is closed: all code that reads samples handles each kind.
using SourceKind = std::variant<const IndexedSource*, const StreamSource*>;

/// A file that samples come from.
struct DataFile {
  std::string name;  // name within the data set, which does not depend on where the data set is stored
  std::string path;  // empty if the samples do not come from a local file but, for example, from a command's output
  std::optional<std::uint64_t> size;  // of a remote object, in bytes
  std::string version;                // of a remote object's content, such as its ETag
};

/// A finite collection of samples. Every source is an IndexedSource or a StreamSource. The loader handles order, epochs and the saved
/// position.
class Source {
 public:
  virtual ~Source() = default;
  virtual SourceKind kind() const = 0;
  /// The number of samples in an epoch.
  virtual std::int64_t size() const = 0;
  /// Returns the number of samples that are known to lack a caption. Reads no samples, so the true number may be larger.
  virtual std::int64_t captionless() const { return 0; }
  /// Returns the class names; a name's index is its label. Empty if the source has no classes.
  virtual std::vector<std::string> class_names() const { return {}; }
  /// Returns the index of the background class in masks, or -1 if there is none.
  virtual std::int64_t background_class() const { return -1; }
  /// Returns the units per meter of the depth images that pack() writes.
  virtual double depth_units() const { return 1000; }
  /// Returns the data sets that the source consists of and how training mixes them. By default, the only data set is the source itself.
  virtual Mixing mixing() const;
  /// Returns the name that messages use for a sample that has not been read yet: its file, or "sample number 7". Thread-safe.
  virtual std::string name_of(std::int64_t index) const { return "sample number " + std::to_string(index); }
  /// Returns a text for messages about samples that lack the fields `needed` ("image", "caption", ...). The text says which members or
  /// columns the samples have, and where the source looks for these fields. Empty if nothing is known.
  virtual std::string describe_fields(const std::vector<std::string>& needed) const {
    static_cast<void>(needed);
    return {};
  }
  /// Returns a description for logs: "shapes train, 10,000 samples".
  virtual std::string describe() const = 0;
  /// Returns a number for each sample that is equal for samples that name the same image file (lists with one row per caption), or 0 if
  /// nothing is known about the sample. Empty if nothing is known about any sample. Reads images only if their names do not suffice.
  virtual std::vector<std::uint64_t> image_ids() const { return {}; }
  /// For a source that joins several rows to one sample: returns the number of bad rows among those read so far that were left out, because
  /// another row of their image is good.
  virtual std::int64_t bad_rows() const { return 0; }
  /// For a source that stores its samples in groups and reads each group as a whole (Parquet's row groups): returns the index of each
  /// group's first sample, ascending, followed by the total number of samples. A fully random order would read a whole group for every
  /// sample, so training draws its samples from a few open groups at a time. Empty if there are no groups.
  virtual std::vector<std::int64_t> group_starts() const { return {}; }
  /// Returns the number of groups that are open at the same time.
  virtual std::int64_t open_groups() const { return 1; }
  /// For a source that can fetch samples before they are read: returns how many samples before, counted over all ranks. 0: not at all.
  virtual std::int64_t read_ahead() const { return 0; }
  /// Says that the index-th sample and most of those near it will be read. Returns at once. Thread-safe.
  virtual void will_read(std::int64_t index) const { static_cast<void>(index); }
  /// Returns the number of files that the samples come from; may be 0. data_file() returns lists and annotations before the other files.
  /// The data set's fingerprint (data_fingerprint.h) covers all these files.
  virtual std::int64_t data_file_count() const { return 0; }
  virtual DataFile data_file(std::int64_t index) const;
};

/// A source with random access. Each epoch visits the samples 0..size-1 in a permuted order; a pair (epoch, cursor) is a place in that
/// order.
class IndexedSource : public Source {
 public:
  SourceKind kind() const final { return this; }
  /// Returns the index-th sample. Thread-safe. Throws SampleError if only this sample is unreadable, UserError if the whole
  /// source is.
  virtual Sample get(std::int64_t index) const = 0;
  /// Returns the captions of the index-th sample. Sources that store captions apart from images return them even if the image
  /// is missing or damaged. Thread-safe; throws as get() does.
  virtual std::vector<std::string> captions(std::int64_t index) const { return get(index).captions; }
  /// Returns the number of captions of the index-th sample. With caption_choice `all` the loader calls this function for every
  /// sample at the start, so sources that know the number without reading texts override it. Thread-safe; throws as get() does.
  virtual std::int64_t caption_count(std::int64_t index) const {
    return static_cast<std::int64_t>(captions(index).size());
  }
  /// Returns whether the index-th sample is known to lack a caption. Reads no samples.
  virtual bool lacks_caption(std::int64_t index) const {
    static_cast<void>(index);
    return false;
  }
  std::int64_t captionless() const final;
};

/// Returns the source as an IndexedSource. Throws UserError if it is a stream.
const IndexedSource& indexed(const Source& source);
std::shared_ptr<const IndexedSource> indexed(const std::shared_ptr<const Source>& source);

/// Formats the numbers of skipped samples by reason: "20 bad_image, 14 no_caption".
std::string describe_counts(const std::map<std::string, std::int64_t>& counts);

/// Calls `read` and returns its sample. If `read` throws a SampleError without a key, throws the error with `key` added.
template <class Read>
Sample read_keyed(const std::string& key, const Read& read) {
  try {
    return read();
  } catch (const SampleError& error) {
    if (!error.key().empty()) throw;
    throw SampleError(error.reason(), error.what(), key);
  }
}

/// Calls `read` and returns its result. If `read` throws a SampleError, throws it with `place` before its text and with this key.
template <class Read>
auto read_at(const std::string& place, const std::string& key, const Read& read) {
  try {
    return read();
  } catch (const SampleError& error) {
    throw SampleError(error.reason(), place + ": " + error.what(), key);
  }
}

using SourceRegistry = config::Registry<Source>;
SourceRegistry& sources();

}  // namespace tessera
