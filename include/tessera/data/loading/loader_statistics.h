#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tessera {

/// Counts of a view's texts and token ids. A text that exceeds the tokenizer's context is cut and loses token ids.
struct TextCuts {
  std::int64_t texts = 0;
  std::int64_t cut_texts = 0;   // number of texts that were cut
  std::int64_t tokens = 0;      // number of token ids before cutting, including special tokens
  std::int64_t cut_tokens = 0;  // number of token ids that were cut off

  TextCuts& operator+=(const TextCuts& more);
  TextCuts operator-(const TextCuts& before) const;
};

struct LoaderStatistics {
  std::int64_t samples = 0;                        // delivered samples
  std::map<std::string, TextCuts> cuts;            // counts of cut texts in the delivered samples, keyed by text view
  std::int64_t left_out = 0;                       // samples that concept balance left out
  std::map<std::string, std::int64_t> skipped;     // number of skipped samples, keyed by reason
  double wait_seconds = 0;                         // time that next() spent waiting
  double work_seconds = 0;                         // time spent on samples, summed over the decoding threads
  double cpu_seconds = 0;                          // the part of work_seconds that was CPU time
  std::int64_t retries = 0;                        // number of reads that were repeated after a failure of the source
  std::int64_t peak_bytes = 0;                     // peak memory of samples being prepared and batches kept ready
  std::int64_t fetched_bytes = 0;                  // bytes that this process has read from remote stores
  std::int64_t fetch_retries = 0;                  // requests to them that were repeated after a failure
  std::int64_t cache_hits = 0, cache_misses = 0;   // reads of remote files that found a local copy, and that waited for one
};

}  // namespace tessera
