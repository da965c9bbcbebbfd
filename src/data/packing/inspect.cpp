#include <algorithm>
#include <optional>

#include <nlohmann/json.hpp>

#include "src/base/dump_utf8.h"
#include "src/data/loading/ordered_workers.h"
#include "src/data/loading/sample_reader.h"
#include "src/data/packing/dataset_statistics.h"
#include "src/data/packing/inspect.h"
#include "src/data/sources/one_per_image.h"
#include <tessera/io/atomic_file.h>

namespace tessera {
Inspection inspect(const Source& source, const InspectSettings& settings,
                   const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const std::int64_t size = source.size(), count = settings.samples > 0 ? std::min(settings.samples, size) : size;
  const FactsWanted wanted{settings.tokenizer, !settings.dump.empty(), settings.pictures > 0};
  const auto place = [size, count](std::int64_t i) { return i * size / count; };
  const auto reader = make_ordered_reader(source);
  OrderedWorkers<SampleFacts> workers(
      settings.threads, 4 * settings.threads, count, [&reader, place, wanted](std::int64_t i, std::int64_t) {
        return facts_of([&] { return reader->read_in_order(i, place(i)); }, place(i), wanted);
      });
  const ReaderStop stop(reader);
  const WaitPolicy wait_policy{60, 0, source.describe(), [&](std::int64_t i) { return source.name_of(place(i)); }};
  std::optional<io::AtomicFile> dump;
  if (wanted.dump) dump.emplace(settings.dump);
  Inspection out;
  DatasetStatistics statistics;
  const std::vector<std::uint64_t> image_ids = image_ids_of(source);
  for (std::int64_t i = 0; i < count; ++i) {
    SampleFacts facts = workers.take(&wait_policy);
    if (!image_ids.empty()) facts.image_id = image_ids.at(static_cast<std::size_t>(place(i)));
    if (dump) dump->write(dump_utf8(facts.dump) + "\n");
    statistics.add(facts);
    // Keeps images at regular intervals, so that they are spread over the source.
    if (wanted.sample && facts.bad_reason.empty() && std::ssize(out.pictures) <= i * settings.pictures / count)
      out.pictures.push_back(std::move(facts.sample));
    progress(i + 1, count);
  }
  if (dump) dump->commit();
  out.report = dump_utf8(statistics.report(source, count == size), 2);
  return out;
}

}  // namespace tessera
