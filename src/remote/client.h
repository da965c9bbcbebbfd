#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <semaphore>
#include <string>
#include <vector>

#include "src/remote/address.h"
#include "src/remote/credentials.h"
#include "src/remote/http.h"
#include <tessera/base/error.h>
#include <tessera/remote/cache_settings.h>

namespace tessera::remote {

/// What identifies the content of an object.
struct ObjectState {
  std::uint64_t size = 0;  // in bytes
  std::string version;     // its ETag without quotes or, if the server sends none, its time of modification; empty: neither

  bool operator==(const ObjectState&) const = default;
};

/// Thrown if there is no such object or, at a web server, if it may not be read.
class MissingObject : public UserError {
 public:
  using UserError::UserError;
};

struct ListedObject {
  std::string address;
  ObjectState state;
};

/// A page of a bucket's listing (ListObjectsV2).
struct Listing {
  std::vector<std::pair<std::string, ObjectState>> objects;  // by key
  std::string next;                                          // names the next page; empty: this is the last one
};

/// Parses the XML of a listing. Throws UserError if the text is none.
Listing parse_listing(const std::string& xml);

/// What a process has transferred.
struct TransferCounts {
  std::atomic<std::int64_t> requests = 0, bytes = 0, retries = 0;
};

/// Requests to stores. Requests that fail in a way that may pass (a cut connection, a timeout, HTTP 408, 429, 500, 502, 503, 504) are
/// repeated after a pause that grows by 2.5 each time, or after the time that the server names. All errors are UserErrors of one line that
/// names the address. Thread-safe.
class Client {
 public:
  explicit Client(const CacheSettings& settings);

  /// Returns the state of an object.
  ObjectState look_up(const std::string& address);

  /// Takes the bytes of an object from `offset` on. After a failure, takes the bytes of a range again from its start.
  using Sink = std::function<void(std::uint64_t offset, const char* bytes, std::size_t size)>;
  struct Got {
    std::string digest;  // MD5 or SHA-256 of the whole object, as far as the server says; otherwise empty
    bool whole = false;  // whether the server has ignored the range, and sent the whole object
  };
  /// Reads `size` bytes of an object from `first` on, or the whole object if size is 0. Throws UserError if the object's state is no longer
  /// `expected`.
  Got get(const std::string& address, const ObjectState& expected, std::uint64_t first, std::uint64_t size, const Sink& sink);

  /// Returns all bytes of an object that has at most 1 GiB, with a single request. Throws MissingObject.
  std::string get_small(const std::string& address);
  /// Reads a piece of an object in parallel ranges into the file `name`, through `write`. If the digest of the whole object is known and
  /// differs from that of the file, reads it again. Returns false if the server sends only the whole object, and the piece is another one.
  bool fetch(const Piece& piece, const ObjectState& state, const std::string& name, const Sink& write);

  /// Stores a local file as an object, of which readers see either all bytes or none. A file of more than 16 MiB is sent in parallel parts
  /// (a multipart upload), except to gs:// with a token. The store compares the MD5 of what arrives. A file that grows is stored as it was
  /// at the beginning; it must not become shorter.
  void put(const std::string& address, const std::string& file);
  /// Stores bytes as an object, in one request.
  void put_text(const std::string& address, std::string_view text);
  /// Removes an object, if it exists.
  void remove(const std::string& address);
  /// Returns the objects whose addresses begin with `prefix`, in the store's order (of bytes): those that have no / after it, or all.
  std::vector<ListedObject> list(const std::string& prefix, bool with_subfolders = false);
  /// Ends the multipart uploads to addresses that begin with `prefix`, which processes that were killed have left behind.
  void abort_uploads(const std::string& prefix);

  /// Makes running and later requests fail soon.
  void stop();
  bool stopped() const { return stopped_; }
  const TransferCounts& counts() const { return counts_; }

 private:
  Endpoint endpoint(const std::string& scheme) const;
  HttpRequest make_request(const std::string& address, const std::string& method, const std::string& query);
  HttpRequest usual_request(const std::string& method) const;
  using HubFolder = std::map<std::string, ObjectState>;  // the files in a folder, by path
  std::string commit_of(const std::string& address);
  const HubFolder& hub_folder(const std::string& address);
  HttpReply exchange(const std::string& address, HttpRequest request);
  HttpReply send_body(const std::string& address, const std::string& method, const std::string& query, std::string_view body);
  void put_parts(const std::string& address, std::string_view bytes);
  void pause(double seconds);

  const CacheSettings settings_;
  Credentials credentials_;
  TransferCounts counts_;
  std::counting_semaphore<256> slots_;
  std::atomic<bool> stopped_ = false;
  mutable std::mutex mutex_;
  std::condition_variable stopping_;
  // What the Hub has said about its repositories, each of which is read at the commit that it has at first.
  std::recursive_mutex hub_mutex_;
  std::map<std::string, std::string> commits_;   // by OWNER/NAME@REVISION
  std::map<std::string, HubFolder> hub_folders_;  // by OWNER/NAME@COMMIT/FOLDER
  mutable std::map<std::string, Endpoint> endpoints_;  // by scheme; found once, because this reads ~/.aws/config
};

}  // namespace tessera::remote
