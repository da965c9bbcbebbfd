#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include <tessera/config/registry.h>
#include <tessera/data/mixing.h>
#include <tessera/data/sample.h>

namespace tessera {

class IndexedSource;
class StreamSource;

/// Of which kind a source is. The list is closed: whoever reads samples handles each kind.
using SourceKind = std::variant<const IndexedSource*, const StreamSource*>;

/// A file that samples come from.
struct DataFile {
  std::string name;  // within the data set, the same wherever that lies
  std::string path;  // empty: it is no file here (a command's output)
};

/// A finite collection of samples: an IndexedSource or a StreamSource. Order, epochs and the saved position are the
/// loader's business.
class Source {
 public:
  virtual ~Source() = default;
  virtual SourceKind kind() const = 0;
  /// Samples of an epoch.
  virtual std::int64_t size() const = 0;
  /// Samples that are known to lack a caption without any being read; others may lack one too.
  virtual std::int64_t captionless() const { return 0; }
  /// Class names, index = label; empty when the source has no classes.
  virtual std::vector<std::string> class_names() const { return {}; }
  /// Index of the background class in masks, -1 = none.
  virtual std::int64_t background_class() const { return -1; }
  /// The data sets that it consists of, and how training mixes them; by default one, itself.
  virtual Mixing mixing() const;
  /// What messages call the index-th sample while it is not read yet: its file, or "sample number 7". Thread-safe.
  virtual std::string name_of(std::int64_t index) const { return "sample number " + std::to_string(index); }
  /// For messages about samples that lack `needed` fields ("image", "caption", ...): what its samples are made of, and
  /// where it looks for these. Empty: there is nothing to say.
  virtual std::string describe_fields(const std::vector<std::string>& needed) const {
    static_cast<void>(needed);
    return {};
  }
  /// "shapes train, 10,000 samples", for logs.
  virtual std::string describe() const = 0;
  /// The files that the samples come from, lists and annotations first; 0: there are none. What tells one data set from
  /// another (data_fingerprint.h) looks at them.
  virtual std::int64_t data_file_count() const { return 0; }
  virtual DataFile data_file(std::int64_t index) const;
};

/// A source with random access: a sample's place is (epoch, cursor) in a permutation of 0..size-1.
class IndexedSource : public Source {
 public:
  SourceKind kind() const final { return this; }
  /// The index-th sample. Thread-safe. Throws SampleError when this one sample is unreadable, UserError when the source is.
  virtual Sample get(std::int64_t index) const = 0;
  /// The captions of the index-th sample. Sources that have them without its picture give them where that is missing or
  /// damaged, too. Thread-safe; throws as get() does.
  virtual std::vector<std::string> captions(std::int64_t index) const { return get(index).captions; }
  /// How many captions the index-th sample has: what the loader's caption_choice `all` asks of each sample at the start.
  /// Sources that know it without the texts say it themselves. Thread-safe; throws as get() does.
  virtual std::int64_t caption_count(std::int64_t index) const {
    return static_cast<std::int64_t>(captions(index).size());
  }
};

/// The source, for what needs any sample at any time. Throws UserError when it is read as a stream.
const IndexedSource& indexed(const Source& source);
std::shared_ptr<const IndexedSource> indexed(const std::shared_ptr<const Source>& source);

/// One sample is corrupt or incomplete: the pipeline skips it, counts it by `reason` and reports it.
class SampleError : public std::runtime_error {
 public:
  /// reason: a short fixed word for counting (`no_image`, `bad_image`, `no_caption`, `not_utf8`, `truncated`, ...)
  /// key: the sample's; sources that know it before the sample is whole tell it
  SampleError(std::string reason, const std::string& text, std::string key = {})
      : std::runtime_error(text), reason_(std::move(reason)), key_(std::move(key)) {}
  const std::string& reason() const { return reason_; }
  const std::string& key() const { return key_; }

 private:
  std::string reason_;
  std::string key_;
};

/// "20 bad_image, 14 no_caption": samples that were left out, by reason.
std::string describe_counts(const std::map<std::string, std::int64_t>& counts);

/// The sample that `read` gives; an error that comes out of it tells the sample's key.
template <class Read>
Sample read_keyed(const std::string& key, const Read& read) {
  try {
    return read();
  } catch (const SampleError& error) {
    if (!error.key().empty()) throw;
    throw SampleError(error.reason(), error.what(), key);
  }
}

using SourceRegistry = config::Registry<Source>;
SourceRegistry& sources();

}  // namespace tessera
