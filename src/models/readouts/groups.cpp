#include <memory>
#include <string>

#include <ATen/ATen.h>

#include "src/models/add_module.h"
#include "src/models/attention.h"
#include "src/models/mlp_head.h"
#include <tessera/base/error.h>

namespace tessera {

struct GroupsReadOutSettings : MlpHeadSettings {
  std::int64_t output_dim = 256;
  std::string pool = "after";
};

template <class Visitor>
void fields(Visitor& v, GroupsReadOutSettings& s) {
  v("output_dim", s.output_dim, "width of the embedding", config::at_least(1));
  fields(v, static_cast<MlpHeadSettings&>(s));
  v("pool", s.pool, "after: the mean of the projected groups; before: the projection of the groups' mean (GroupViT)",
    config::one_of({"after", "before"}));
}

namespace {

/// `groups`: projects the groups of an encoder (groupvit, text_group_encoder) with the read-out's head, `head.*`, and pools them. The tower
/// has `projection: none`. The read-out's slots are the projected groups [B, K, output_dim]. The attention comes from the encoder and is
/// the weight of each patch or word in each group.
class GroupsReadOut : public ReadOut {
 public:
  GroupsReadOut(const GroupsReadOutSettings& settings, const ReadOutContext& context)
      : settings_(settings),
        head_(register_module("head", std::make_shared<MlpHead>(settings, context.width, settings.output_dim))) {}

  ReadOutOutput forward(const Encoded& encoded, const ViewNeeds& needs) override {
    const at::Tensor groups = at_least_float(encoded.tokens);
    if (encoded.mask.defined())
      user_error("model: readout groups: the encoder's tokens have padding: choose gap, or an encoder that returns groups");
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

  std::int64_t output_width() const override { return settings_.output_dim; }

 private:
  GroupsReadOutSettings settings_;
  std::shared_ptr<MlpHead> head_;
};

}  // namespace

void add_groups(ReadOutRegistry& list) {
  add_readout<GroupsReadOut, GroupsReadOutSettings>(list, "groups", "the mean of projected groups (projection none)");
}

}  // namespace tessera
