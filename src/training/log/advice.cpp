#include "src/training/log/advice.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <thread>
#include <unordered_map>

#include <ATen/ATen.h>

#include "src/measure/machine.h"
#include "src/training/checkpoint/checkpoint.h"
#include "src/training/run/epochs.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/node.h>
#include <tessera/objectives/contrastive_objective.h>
#include <tessera/optim/schedule.h>

namespace tessera {
namespace {

using Lines = std::vector<std::string>;

double share_of(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

long whole_percent(double share) {
  return std::lround(100 * share);
}

// Formats a share, as in "12.3%". A share below a tenth of a percent becomes "less than 0.1%", not 0.
std::string percent_text(double share) {
  return share < 0.001 ? "less than 0.1%" : fixed(100 * share, 1) + "%";
}

// Returns the warning, if at least a quarter of a batch's texts are equal, or if equal texts keep a contrastive loss above half of its
// chance level. The comparison includes padding.
Lines look_for_equal(const TowerInput& texts, const Tokenizer& tokenizer) {
  struct Seen {
    std::int64_t count = 0, row = 0;
  };
  const at::Tensor ids = texts.ids.contiguous();
  const at::Tensor present = texts.mask.defined() ? texts.mask.any(1) : at::ones({ids.size(0)}, at::kBool);
  const auto width = static_cast<std::size_t>(ids.size(1)) * sizeof(std::int64_t);
  const char* bytes = reinterpret_cast<const char*>(ids.const_data_ptr<std::int64_t>());
  std::unordered_map<std::string_view, Seen> seen;
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < ids.size(0); ++row) {
    if (!present.const_data_ptr<bool>()[row]) continue;
    Seen& own = seen[{bytes + static_cast<std::size_t>(row) * width, width}];
    own = {own.count + 1, row};
    ++count;
  }
  Seen commonest;
  double least_loss = 0;  // the lowest contrastive loss that is possible if equal texts cannot be distinguished
  for (const auto& [text, own] : seen) {
    const auto times = static_cast<double>(own.count);
    least_loss += times * std::log(times) / static_cast<double>(count);
    if (own.count > commonest.count) commonest = own;
  }
  constexpr std::int64_t kFewest = 8;
  constexpr double kShared = 0.25, kOfChance = 0.5;
  const double chance = std::log(static_cast<double>(count));
  if (count < kFewest || (share_of(commonest.count, count) < kShared && least_loss < kOfChance * chance)) return {};
  at::Tensor repeated = texts.ids[commonest.row].contiguous();
  if (texts.mask.defined()) repeated = repeated.masked_select(texts.mask[commonest.row]);
  const auto* first = repeated.const_data_ptr<std::int64_t>();
  const std::string decoded = tokenizer.decode({first, first + repeated.numel()}), text(strip(decoded));
  constexpr std::size_t kLongest = 60;
  const std::string shown = text.size() <= kLongest ? text : repair_utf8(text.substr(0, kLongest)) + "...";
  return {concat("captions: ", commonest.count, " of the ", count, " of a batch are ", text.empty() ? "empty" : concat("\"", shown, "\""),
                 ". Pairs with equal captions cannot be distinguished: a contrast cannot fall below ", fixed(least_loss, 2),
                 ", and chance is ", fixed(chance, 2),
                 ". Check what data.train uses as captions, or set the objective's mask_duplicates")};
}

std::string diagnose(const DataWindow& sum, std::int64_t threads, std::int64_t cores) {
  constexpr double kBusy = 0.75;      // threads that are busy for less than this share of the time count as idle
  constexpr double kComputing = 0.6;  // threads that compute for less than this share of their busy time are waiting for files or cores
  const double busy = sum.work_seconds / (sum.seconds * static_cast<double>(threads));
  const double computing = sum.work_seconds > 0 ? sum.cpu_seconds / sum.work_seconds : 0;
  const std::string what = concat("data: training waits for data ", whole_percent(sum.wait_seconds / sum.seconds), "% of the time; the ",
                                  threads, threads == 1 ? " decoding thread is" : " decoding threads are");
  if (busy < kBusy)
    return concat(what, " busy only ", whole_percent(busy),
                  "% of the time, so the bottleneck is between them and the step: raise data.loader.prefetch, "
                  "or check what else runs on the ",
                  cores, " cores");
  if (computing < kComputing && threads < cores)
    return concat(what, " busy, but only ", whole_percent(computing),
                  "% of that is computing, the rest is waiting for files: raise data.loader.threads (now ", threads,
                  "; more threads hide a slow disk), or move the data to a faster disk");
  if (threads < cores)
    return concat(what, " decoding without pause: raise data.loader.threads (", cores, " cores here), or store smaller images");
  return concat(what, " decoding without pause on ", cores, " cores: store smaller images, or give the job more cores");
}

// The first epoch had many bad samples, whose number is not known earlier.
AdviceRule epochs_are_shorter(const TrainingSettings& settings) {
  return {[settings](const RunEvent& event) -> Lines {
    if (!event.first_epoch_over) return {};
    std::int64_t bad = 0;
    for (const auto& [reason, count] : event.loader->skipped) bad += count;
    const auto line = shorter_epochs(settings, event.loader->samples, bad);
    return line ? Lines{*line} : Lines{};
  }};
}

// Returns true if the objective or one of its terms is contrastive.
bool is_contrastive(const Objective& objective) {
  return std::ranges::any_of(objective.modules(), [](const auto& module) {
    return dynamic_cast<const ContrastiveObjective*>(module.get()) != nullptr;
  });
}

// Lists the settings that count steps, and count more than the run has: "schedule.warmup_steps is 50".
void add_longer(const config::Node& node, const std::string& path, std::int64_t steps, Lines& out) {
  for (const auto& [key, value] : node.members()) {
    const std::string own = config::join_path(path, key);
    if (key.ends_with("_steps") && key != "every_steps" && value.is_scalar() && std::atoll(value.text().c_str()) > steps)
      out.push_back(concat(own, " is ", value.text()));
    add_longer(value, own, steps, out);
  }
  for (std::size_t i = 0; i < node.items().size(); ++i) add_longer(node.items()[i], concat(path, ".", i), steps, out);
}

double weight_bytes(const std::map<std::string, at::Tensor>& tensors) {
  double bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += static_cast<double>(tensor.nbytes());
  return bytes;
}

// Returns a warning if the disk of the run's folder has no room for the run's checkpoints; nothing if it has, or if that is not known.
std::optional<std::string> lack_of_room(const TrainingRun& run, const Config& config) {
  const double one = weight_bytes(collect_weights(*run.model, *run.objective)) + static_cast<double>(run.optimizer->state_bytes()) +
                     (run.ema ? weight_bytes(run.ema->averages()) : 0) + (run.teacher ? weight_bytes(run.teacher->ema.averages()) : 0);
  namespace fs = std::filesystem;
  const fs::path folder = fs::absolute(config.run.path()).lexically_normal();
  fs::path existing = folder / "checkpoints";  // which may be a link to another disk
  std::error_code failed;
  while (!fs::exists(existing, failed) && existing.has_relative_path()) existing = existing.parent_path();
  const fs::space_info disk = fs::space(existing, failed);
  if (failed || disk.capacity == 0) return std::nullopt;
  const CheckpointSettings& s = config.checkpoint;
  const std::int64_t saves = s.every_steps > 0 ? (config.training.steps + s.every_steps - 1) / s.every_steps : 1;
  const std::int64_t there = std::ssize(CheckpointFolder((folder / "checkpoints").string(), 1).list());
  // If the disk is full, saving deletes the oldest checkpoint, but only if there are two.
  const std::int64_t lasting = s.keep_every > 0 ? config.training.steps / s.keep_every : 0;
  const std::int64_t kept = std::min(saves, std::max<std::int64_t>(2, s.keep_last) + lasting);
  const double missing = static_cast<double>(std::max<std::int64_t>(there < 2 ? 1 : 0, kept - there));
  const double free = static_cast<double>(disk.available);
  if (one * missing <= free) return std::nullopt;
  return concat(folder.string(), ": has ", format_bytes(free), " of free space, but a checkpoint takes ", format_bytes(one),
                one > free ? std::string(": the run could save nothing")
                           : concat(", and the run keeps up to ", kept, " (checkpoint.keep_last ", s.keep_last, ")"),
                ": make room, or choose another run.folder");
}

double product_seconds(at::ScalarType type) {
  constexpr std::int64_t kSide = 256;
  constexpr int kRepeats = 5;
  constexpr double kBudget = 0.02;
  const at::Device cpu = at::kCPU;
  const auto product = square_product(cpu, type, kSide);
  product();  // warm-up: starts threads and chooses an algorithm
  return median_seconds(cpu, product, kRepeats, kBudget);
}

}  // namespace

Lines advise(std::vector<AdviceRule>& rules, const RunEvent& event) {
  Lines out;
  for (AdviceRule& rule : rules) {
    if (rule.last_said && event.now - *rule.last_said < rule.pause) continue;
    Lines lines = rule.look(event);
    if (!lines.empty()) rule.last_said = event.now;
    std::ranges::move(lines, std::back_inserter(out));
  }
  return out;
}

std::vector<AdviceRule> advice_rules(const Config& config, const TrainingRun& run, int ranks) {
  // A contrastive loss normally falls below chance level within this many steps after the warm-up, whatever the batch size.
  constexpr std::int64_t kStepsToLeaveChance = 300;
  const std::map<std::string, double> levels = run.objective->chance_levels(config.data.loader.batch_size * ranks);
  std::vector<AdviceRule> rules{waits_for_data(config.data.loader.threads, std::thread::hardware_concurrency()),
                                epochs_are_shorter(config.training),
                                stays_at_chance(levels, warmup_steps_of(config.schedule, config.training.steps) + kStepsToLeaveChance,
                                                run.optimizer->peak_learning_rate(), config.parameters.frozen)};
  if (!run.tokenizer) return rules;
  if (!run.needs.texts.empty()) rules.push_back(cuts_much(run.tokenizer->context_length()));
  // compared_text() never returns the view `captions`, because the K captions of one image may be equal.
  const std::string compared = compared_text(run.needs);
  if (!run.objective->chance_levels(2).empty() && !run.needs.duplicates && !compared.empty())
    rules.push_back(equal_captions(compared, run.tokenizer));
  return rules;
}

AdviceRule equal_captions(const std::string& view, std::shared_ptr<const Tokenizer> tokenizer) {
  constexpr int kBatches = 20, kBad = 3;  // how many batches are checked, and how many bad ones cause the warning
  return {[=, batches = 0, bad = 0](const RunEvent& event) mutable -> Lines {
    if (event.batch == nullptr || batches == kBatches) return {};
    const auto found = event.batch->texts.find(view);
    if (found == event.batch->texts.end() || !found->second.ids.defined()) return {};
    ++batches;
    Lines lines = look_for_equal(found->second, *tokenizer);
    return !lines.empty() && ++bad == kBad ? lines : Lines{};
  }};
}

AdviceRule stays_at_chance(const std::map<std::string, double>& levels, std::int64_t begin, double learning_rate, const Lines& frozen) {
  struct Average {
    double value = 0;
    std::int64_t steps = 0;
  };
  return {[=, averages = std::map<std::string, Average>()](const RunEvent& event) mutable -> Lines {
    constexpr double kNearChance = 0.97;
    constexpr std::int64_t kAveraged = 50;  // number of steps that an average covers
    if (event.terms == nullptr) return {};
    std::string at_chance;
    for (const auto& [name, value] : *event.terms) {
      auto level = levels.find(name);
      if (level == levels.end()) level = levels.find(name.substr(name.find('.') + 1));
      if (level == levels.end() || level->second <= 0 || !std::isfinite(value)) continue;
      Average& average = averages[name];
      average.steps = std::min(average.steps + 1, kAveraged);
      average.value += (value - average.value) / static_cast<double>(average.steps);
      if (average.steps == kAveraged && average.value >= kNearChance * level->second)
        at_chance += concat(at_chance.empty() ? "" : ", ", name, " ", fixed(average.value, 2), " (chance ", fixed(level->second, 2), ")");
    }
    if (event.step < begin || at_chance.empty()) return {};
    return {concat("the loss is at chance after step ", with_thousands(event.step), ": ", at_chance,
                   ". The model does not distinguish pairs: check the learning rate (optimizer.lr ", learning_rate,
                   "), whether captions match their images (tessera-data inspect shows some), and what is trained ",
                   frozen.empty() ? "(start.weights, parameters)" : concat("(parameters.frozen: ", join_names(frozen), ")"))};
  }};
}

AdviceRule cuts_much(std::int64_t context) {
  return {[context, steps = 0](const RunEvent& event) mutable -> Lines {
    constexpr int kFirstSteps = 10;
    constexpr double kMuch = 0.25;
    Lines lines;
    if (event.loader == nullptr || ++steps != kFirstSteps) return lines;
    for (const auto& [view, total] : event.loader->cuts)
      if (const double tokens = share_of(total.cut_tokens, total.tokens); tokens >= kMuch)
        lines.push_back(concat("the tokenizer's context of ", context, " cuts off ", percent_text(tokens), " of the tokens of ", view,
                               ": set a larger tokenizer.context_length, or shorten the texts"));
    return lines;
  }};
}

AdviceRule waits_for_data(std::int64_t threads, std::int64_t cores) {
  constexpr double kSilence = 600;
  return {[=, sum = DataWindow()](const RunEvent& event) mutable -> Lines {
            constexpr double kLargeShare = 0.2, kShortest = 10;
            const DataWindow& more = event.data;
            sum = {sum.seconds + more.seconds, sum.wait_seconds + more.wait_seconds, sum.work_seconds + more.work_seconds,
                   sum.cpu_seconds + more.cpu_seconds};
            if (sum.seconds < kShortest) return {};
            const DataWindow whole = std::exchange(sum, {});
            return whole.wait_seconds > kLargeShare * whole.seconds ? Lines{diagnose(whole, threads, cores)} : Lines{};
          },
          kSilence};
}

std::optional<std::string> longer_than_run(const Config& config) {
  if (config.training.steps == 0 || config.training.epochs) return std::nullopt;
  const auto [from, to] = config.schedule.part;
  const std::int64_t steps = std::llround(static_cast<double>(config.training.steps) / (to - from));
  Lines longer;
  add_longer(config::parse_yaml(to_yaml(config), ""), "", steps, longer);
  if (longer.empty()) return std::nullopt;
  const bool cut = config.schedule.warmup_steps > steps;
  return concat(join_names(longer), ", but ", to - from < 1 ? "the whole schedule of schedule.part" : "the run", " has only ", steps,
                steps == 1 ? " step" : " steps",
                cut ? ": the warm-up is cut to this length, and the learning rate does not fall afterwards" : "",
                ": set them for this length", cut ? "; schedule.warmup_share: 0.05 adapts to it" : "");
}

Lines start_advice(const TrainingRun& run, const Config& config, int ranks) {
  Lines out;
  const std::int64_t batch = config.data.loader.batch_size;
  const auto& micro_batch = config.training.micro_batch.samples;
  if (micro_batch && *micro_batch > batch)
    out.push_back(concat("training.micro_batch is ", *micro_batch, ", more than data.loader.batch_size, ", batch,
                         ": the towers process the whole batch at once"));
  if (batch * ranks == 1 && is_contrastive(*run.objective))
    out.push_back(concat("data.loader.batch_size is 1: the objective ", config.objective.name,
                         " compares a pair with the others of its batch, but there are none: use a larger batch"));
  const std::vector<std::int64_t> widths = run.objective->nested_widths();
  if (const std::int64_t whole = run.model->embed_dim(); !widths.empty() && !contains(widths, whole))
    out.push_back(concat("objective.matryoshka.widths does not have ", whole, ", the width of the embeddings: whole embeddings are not trained"));
  if (const auto line = longer_than_run(config)) out.push_back(*line);
  if (const auto line = lack_of_room(run, config)) out.push_back(*line);
  return out;
}

std::optional<std::string> slow_precision_text(const std::string& precision, double times_float32) {
  constexpr double kNotablySlower = 1.2;
  if (times_float32 < kNotablySlower) return std::nullopt;
  return concat("training.precision is ", precision, ", and matrix products take ", fixed(times_float32, times_float32 < 10 ? 1 : 0),
                " times as long as in float32 on this CPU: set it to float32");
}

std::optional<std::string> slow_precision(const at::Device& device, const std::string& precision) {
  if (!device.is_cpu() || precision == "float32") return std::nullopt;
  const double seconds = product_seconds(precision == "fp16" ? at::kHalf : at::kBFloat16);
  return slow_precision_text(precision, seconds / product_seconds(at::kFloat));
}

CutReport report_cuts(std::int64_t epoch, std::int64_t context, const std::map<std::string, TextCuts>& before,
                      const std::map<std::string, TextCuts>& after) {
  CutReport out;
  for (const auto& [view, total] : after) {
    const auto earlier = before.find(view);
    const TextCuts now = earlier == before.end() ? total : total - earlier->second;
    if (now.cut_tokens <= 0) continue;
    const double tokens = share_of(now.cut_tokens, now.tokens), texts = share_of(now.cut_texts, now.texts);
    out.shares.emplace_back("tokens." + view, tokens);
    out.shares.emplace_back("texts." + view, texts);
    out.lines.push_back(concat("epoch ", epoch, ": the tokenizer's context of ", context, " cut off ", percent_text(tokens),
                               " of the tokens of ", view, ", out of ", percent_text(texts), " of its texts"));
  }
  return out;
}

}  // namespace tessera
