#include <algorithm>
#include <iomanip>
#include <sstream>

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include "src/config/values.h"
#include "src/distributed/agreement.h"
#include "src/measure/machine.h"
#include "src/training/memory/memory_plan.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

std::string bytes_text(std::int64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

std::int64_t usable(std::int64_t available) {
  return static_cast<std::int64_t>(kUsableMemory * static_cast<double>(available));
}

struct Row {
  std::string what;
  std::int64_t bytes;
  std::string note;
};

std::vector<Row> make_rows(const MemoryPlan& plan) {
  std::vector<Row> all{
      {"weights", plan.weights, ""},
      {"gradients", plan.gradients, ""},
      {"optimizer", plan.optimizer, ""},
      {"averaged weights", plan.average, ""},
      {"gradient buckets", plan.buckets, ""},
      {"batch", plan.data, ""},
      {"activations", plan.activations, concat("of the towers, ", plan.micro_batch, " samples")},
      {"features", plan.features, "of the whole batch"},
      {"loss", plan.loss,
       concat(plan.ranks > 1 ? concat(plan.batch, " x ", plan.batch * plan.ranks, " pairs")
                             : "gradients of the features included",
              plan.loss_measured ? "" : "; extrapolated")},
  };
  std::erase_if(all, [](const Row& row) { return row.bytes == 0 && row.what != "loss"; });
  return all;
}

// Returns the number in a module's setting; 0 if there is none.
double number_of(const config::ModuleSettings& module, const char* key) {
  const config::Node* node = module.settings.find(key);
  return node != nullptr && !node->is_null() ? config::Value<double>::read(*node, key, 0) : 0;
}

// Returns how many patches the image encoder makes of an image. An encoder without patch_size halves the image five times.
double patches_of(const Config& config) {
  const Preprocessing& preprocessing = config.model.preprocessing;
  if (keeps_shapes(preprocessing)) return static_cast<double>(preprocessing.max_patches);
  const config::Node* node = config.model.image.encoder.settings.find("patch_size");
  const auto side = node != nullptr && !node->is_null() ? config::Value<config::Size>::read(*node, "patch_size", {}) : config::Size(32);
  const auto &[height, width] = preprocessing.image_size;
  return static_cast<double>(height / side.height * (width / side.width));
}

// Returns how many bytes settle_chunks() counts.
double bytes_without_tiles(const Config& config, int ranks) {
  const double batch = static_cast<double>(config.data.loader.batch_size), all = batch * ranks;
  double tokens = 0, width = 0;  // of a text
  if (config.model.text) {
    tokens = number_of(config.model.text->encoder, "context_length");
    width = number_of(config.model.text->projection, "embed_dim");
    if (width == 0) width = number_of(config.model.text->encoder, "width");
  }
  const double patches = patches_of(config), gathered = ranks > 1 ? 2 * tokens * width : 0;
  double of_pair = 8, of_text = 0;  // numbers of four bytes; as many as the memory plan measures
  const auto count = [&](const std::string& objective) {
    if (objective != "filip" && objective != "pacl" && objective != "gloria") return;
    of_text = gathered;
    if (objective == "filip" && ranks > 1) of_pair = std::max(of_pair, 8 + 1.25 * (patches + tokens));
    if (objective == "pacl") of_pair = std::max(of_pair, 8 + 16 * patches);
    if (objective == "gloria") of_pair = std::max(of_pair, 8 + 13 * patches * tokens);
  };
  count(config.objective.name);
  config::for_each_value(config.objective.settings, "", [&](const std::string& path, const config::Node& value) {
    if (path.ends_with(".name")) count(value.text());
  });
  return sizeof(float) * (of_pair * batch * all + of_text * all);
}

}  // namespace

bool MemoryPlan::fits() const {
  return !refused && total() <= usable(available) && (!gpu || host() <= usable(host_available));
}

std::vector<ChunkSetting> chunk_settings(const Config& config) {
  std::vector<ChunkSetting> out;
  config::for_each_value(config.objective.settings, "objective", [&](const std::string& path, const config::Node& value) {
    if (path.ends_with(".chunk"))
      out.push_back({path, config::Value<config::SamplesAtATime>::read(value, path, {})});
  });
  return out;
}

std::string settle_chunks(Config& config, int ranks, std::int64_t memory) {
  std::string chosen;
  const double bytes = bytes_without_tiles(config, ranks), share = kSimilarityShare * static_cast<double>(memory);
  const std::string number = bytes > share ? std::to_string(kPairsPerTile) : "null";
  for (const ChunkSetting& each : chunk_settings(config)) {
    if (!each.chunk.automatic) continue;
    config::apply_override(config.objective.settings, concat(each.path.substr(each.path.find('.') + 1), "=", number));
    chosen += concat(chosen.empty() ? "" : ", ", each.path);
  }
  if (chosen.empty()) return "";
  return concat(chosen, " auto: ", number, ", because the similarities of ", with_thousands(config.data.loader.batch_size), " x ",
                with_thousands(config.data.loader.batch_size * ranks), " pairs would take ", format_bytes(bytes), ", ",
                bytes > share ? "more" : "no more", " than a tenth of ", format_bytes(static_cast<double>(memory)));
}

std::string settle_chunks(Config& config, const ProcessGroup& group) {
  if (std::ranges::none_of(chunk_settings(config), [](const ChunkSetting& each) { return each.chunk.automatic; })) return "";
  const at::Device device = choose_device(config, group.local_rank());
  std::int64_t memory = whole_memory(device);
  if (device.is_cpu()) memory /= ranks_on_this_machine(group).count;
  at::Tensor least = at::full({1}, memory, at::kLong);
  group.all_reduce(least, Reduction::min);
  return settle_chunks(config, group.size(), least.item<std::int64_t>());
}

std::vector<std::string> ways_out(const MemoryPlan& plan, const Config& config) {
  std::vector<std::string> towers, loss, host, out;
  if (plan.micro_batch == plan.batch && plan.batch > 1)
    towers.emplace_back("training.micro_batch: auto");
  else if (plan.micro_batch > 1)
    towers.emplace_back("a smaller training.micro_batch (or auto)");
  config::for_each_value(config::dump(config.model), "model", [&](const std::string& path, const config::Node& value) {
    if (path.ends_with(".grad_checkpointing") && value.text() == "false") towers.push_back(path + ": true");
  });
  if (plan.gpu && config.training.precision == "float32") towers.emplace_back("training.precision: bf16");
  if (config.training.precision == "bf16" && config.training.residual == "float32") towers.emplace_back("training.residual: bfloat16");
  for (const ChunkSetting& each : chunk_settings(config))
    loss.push_back(each.chunk.samples ? "a smaller " + each.path : concat(each.path, ": ", kPairsPerTile));
  if (config.checkpoint.background) host.emplace_back("checkpoint.background: false");
  if (plan.ready > plan.total() / 10) host.emplace_back("a smaller data.loader.prefetch");

  const bool loss_first = plan.loss > plan.activations;
  for (const auto& some : {loss_first ? loss : towers, loss_first ? towers : loss})
    out.insert(out.end(), some.begin(), some.end());
  const bool host_matters = plan.gpu ? plan.host() > usable(plan.host_available) : plan.host() > plan.total() / 10;
  if (host_matters)
    out.insert(plan.gpu && plan.peak <= usable(plan.available) ? out.begin() : out.end(), host.begin(), host.end());
  if (plan.batch > 1) out.emplace_back(config.training.global_batch ? "a smaller training.global_batch, or more processes" : "a smaller data.loader.batch_size");
  return out;
}

std::string summary(const MemoryPlan& plan) {
  std::string parts;
  for (const Row& row : make_rows(plan)) parts += concat(parts.empty() ? "" : ", ", row.what, " ", bytes_text(row.bytes));
  if (!plan.gpu && plan.host() > 0) parts += concat(", checkpoint and ready batches ", bytes_text(plan.host()));
  return concat(bytes_text(plan.total()), " of ", bytes_text(plan.available), ", highest in ", plan.peak_phase, " (",
                parts, ")");
}

std::string to_text(const MemoryPlan& plan, const Config& config) {
  std::ostringstream out;
  const auto line = [&](const std::string& what, const std::string& value, const std::string& note) {
    out << "  " << std::left << std::setw(18) << what << std::right << std::setw(11) << value
        << (note.empty() ? "" : "  ") << note << "\n";
  };
  out << "memory plan" << (plan.ranks > 1 ? concat(" for each of ", plan.ranks, " ranks") : "") << ", "
      << (plan.gpu ? "on the GPU" : "on the CPU") << "\n";
  for (const Row& row : make_rows(plan)) line(row.what, bytes_text(row.bytes), row.note);
  line("peak of a step", bytes_text(plan.peak), "in " + plan.peak_phase + "; not all parts exist at the same time");
  if (plan.checkpoint > 0)
    line("checkpoint", bytes_text(plan.checkpoint),
         concat("written in the background from a copy", plan.gpu ? ", in host memory" : ""));
  line("ready batches", bytes_text(plan.ready), plan.gpu ? "in host memory" : "");
  line(
      "needed", bytes_text(plan.total()),
      concat("of ", bytes_text(plan.available), " available",
             plan.gpu ? concat("; on the host ", bytes_text(plan.host()), " of ", bytes_text(plan.host_available)) : "",
             plan.fits() ? ": fits" : ": does not fit"));
  if (!plan.fits()) out << "  ways out          " << c10::Join("; ", ways_out(plan, config)) << "\n";
  return out.str();
}

}  // namespace tessera
