// The parts of Trainer that choose the micro-batch and report a lack of memory.
#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include "src/base/host.h"
#include "src/distributed/agreement.h"
#include "src/training/trainer.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>

namespace tessera {
PlanSettings Trainer::plan_settings() const {
  PlanSettings out;
  out.rank = group_.rank();
  out.ranks = group_.size();
  if (group_.alone()) return out;
  const auto host = static_cast<std::int64_t>(std::hash<std::string>{}(machine_name()));
  const at::Tensor hosts = group_.all_gather(at::full({1}, host, at::kLong));
  out.ranks_here = out.started = static_cast<int>((hosts == host).sum().item<std::int64_t>());
  for (const NamedParameter& parameter : run_.optimizer->parameters())
    out.allocated += static_cast<std::int64_t>(parameter.tensor.nbytes());  // memory of the gradient reducer's buckets
  return out;
}

void Trainer::settle_micro_batch() {
  if (!config_.training.micro_batch.automatic) return;
  const PlanSettings settings = plan_settings();
  const std::int64_t batch = config_.data.loader.batch_size;
  MemoryPlan plan;
  run_on_all_ranks(group_, "measuring memory", [&] {
    plan = plan_memory(run_, config_, settings);
    if (!plan.fits())
      user_error("training.micro_batch auto: not even one sample at a time fits: it takes ", summary(plan), ": set ",
                 c10::Join(", or ", ways_out(plan, config_)));
  });
  at::Tensor samples = at::full({1}, plan.micro_batch, at::kLong);
  group_.all_reduce(samples, Reduction::min);
  config_.training.micro_batch = {false, samples.item<std::int64_t>()};
  log::info("training.micro_batch auto: ", samples.item<std::int64_t>(), " of ", batch,
            " samples at a time; planned memory ", summary(plan));
}

void Trainer::explain_out_of_memory() {
  const std::int64_t step = state_.step + 1, batch = config_.data.loader.batch_size;
  std::string advice = "see trainer --dry-run";
  try {
    PlanSettings settings;  // does not call plan_settings(), because that function communicates with other ranks, which may have failed
    settings.rank = group_.rank();
    settings.ranks = group_.size();
    const MemoryPlan plan = plan_memory(run_, config_, settings);
    advice = concat("it takes about ", summary(plan), ": set ", c10::Join(", or ", ways_out(plan, config_)));
  } catch (const std::exception&) {
    // If not even a few samples fit into memory, the message contains no measurements.
  }
  user_error("out of memory in step ", step, " with a batch of ", batch,
             group_.size() == 1 ? "" : concat(" on rank ", group_.rank()), ": ", advice);
}

}  // namespace tessera
