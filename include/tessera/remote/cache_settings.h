#pragma once

#include <cstdint>

#include <tessera/config/fields.h>
#include <tessera/config/file_path.h>

namespace tessera::remote {

/// The settings data.cache of a run: how remote files (s3://, gs://, hf://, http://, https://) are fetched and kept on the local disk.
struct CacheSettings {
  config::OutputPath folder;
  std::int64_t size_mb = 65'536;
  std::int64_t ahead = 8;
  std::int64_t connections = 8;
  std::int64_t retries = 8;
  double timeout = 30;
};

template <class Visitor>
void fields(Visitor& v, CacheSettings& s) {
  v("folder", s.folder,
    "folder on a local disk for the files that are fetched; the processes of a machine share it. Empty: $TESSERA_REMOTE_CACHE, or "
    "tessera/remote in the user's cache folder ($XDG_CACHE_HOME, ~/.cache)");
  v("size_mb", s.size_mb, "maximum MiB of all files in this folder; the least recently used files are deleted", config::at_least(1));
  v("ahead", s.ahead, "number of shards to fetch before they are needed; affects only speed", config::at_least(0));
  v("connections", s.connections, "maximum number of requests of a process at a time", config::in_range(1, 256));
  v("retries", s.retries, "how often a request is repeated that failed in a way that may pass (a cut connection, a busy server)",
    config::at_least(0));
  v("timeout", s.timeout, "seconds with less than 1 KiB/s after which a request counts as failed", config::in_range(1, 3600));
}

}  // namespace tessera::remote
