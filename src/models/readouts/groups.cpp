#include <ATen/ATen.h>

#include <tessera/models/attention.h>
#include <tessera/models/readouts/groups.h>

namespace tessera {

GroupsReadOut::GroupsReadOut(const GroupsReadOutSettings& settings, const ReadOutContext& context)
    : settings_(settings),
      head_(register_module("head", std::make_shared<MlpHead>(settings, context.width, settings.output_dim))) {}

ReadOutOutput GroupsReadOut::forward(const Encoded& encoded, const ViewNeeds& needs) {
  const at::Tensor groups = at_least_float(encoded.tokens);
  TORCH_CHECK(!encoded.mask.defined(), "groups: this encoder's tokens have padding; use gap, or an encoder of groups");
  ReadOutOutput out;
  if (settings_.pool == "before") {
    out.embedding = head_->forward(groups.mean(1));
    if (needs.slots) out.slots = head_->forward(groups);
  } else {
    const at::Tensor projected = head_->forward(groups);
    out.embedding = projected.mean(1);
    if (needs.slots) out.slots = projected;
  }
  if (needs.attention) out.attention = encoded.attention;
  return out;
}

}  // namespace tessera
