#include "src/models/add_module.h"
#include "src/models/groupvit.h"
#include "src/models/modified_resnet.h"
#include "src/models/readouts/fdt.h"
#include "src/models/text_group_encoder.h"
#include "src/models/text_transformer.h"
#include "src/models/token_projection.h"
#include "src/models/vit.h"

namespace tessera {

EncoderRegistry& encoders() {
  static EncoderRegistry registry = [] {
    EncoderRegistry list("encoder");
    add_encoder<Vit, VitSettings>(list, "vit", "vision transformer");
    add_encoder<ModifiedResnet, ModifiedResnetSettings>(list, "modified_resnet",
                                                        "CLIP's ResNet; read-out attention_pool_2d");
    add_convnext(list);
    add_fastvit(list);
    add_timm_resnet(list);
    add_encoder<TextTransformer, TextTransformerSettings>(list, "text_transformer",
                                                          "text transformer, causal or bidirectional");
    add_encoder<GroupVit, GroupVitSettings>(list, "groupvit",
                                            "vision transformer that groups its patches; read-out groups");
    add_encoder<TextGroupEncoder, TextGroupEncoderSettings>(list, "text_group_encoder",
                                                            "text transformer that groups its tokens; read-out groups");
    add_stored_encoders(list);
    return list;
  }();
  return registry;
}

ReadOutRegistry& readouts() {
  static ReadOutRegistry registry = [] {
    ReadOutRegistry list("read-out");
    add_poolings(list);
    add_map(list);
    add_attentional_pool(list);
    add_attention_pool_2d(list);
    add_sparo(list);
    add_linear_bottleneck(list);
    add_readout<Fdt, FdtSettings>(list, "fdt", "a sparse combination of codes from a codebook that both towers share");
    add_groups(list);
    add_readout<TokenProjection, TokenProjectionSettings>(
        list, "token_projection", "STAIR's sparse vector over the text tower's vocabulary (projection none)");
    add_none(list);
    return list;
  }();
  return registry;
}

}  // namespace tessera
