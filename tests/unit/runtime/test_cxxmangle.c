/* Symbols of C++ functions, compared with those that compilers make. */
#include <string.h>
#include "check.h"
#include "runtime/process/cxxmangle.h"

#define TENSOR "RKN2at6TensorE"
#define OPT_TENSOR "RKSt8optionalIN2at6TensorEE"
#define SIZES "N3c108ArrayRefIN3c106SymIntEEE"
#define OPT(type) "St8optionalI" type "E"

static void mangled(const char *scope, int n, const char *const *type, const char *want) {
  char out[512];
  CHECK(mg_cxxmangle(out, sizeof out, scope, "4call", type, n));
  CHECK(!strcmp(out, want));
  CHECK(!mg_cxxmangle(out, strlen(want), scope, "4call", type, n)); /* no room for the end of the string */
}

int main(void) {
  mangled("2at4_ops4none", 0, NULL, "_ZN2at4_ops4none4callEv");
  mangled("2at4_ops4topk", 5, (const char *const[]){TENSOR, "N3c106SymIntE", "l", "b", "b"},
          "_ZN2at4_ops4topk4callERKNS_6TensorEN3c106SymIntElbb");
  mangled("2at4_ops5clamp", 3,
          (const char *const[]){TENSOR, "RKSt8optionalIN3c106ScalarEE", "RKSt8optionalIN3c106ScalarEE"},
          "_ZN2at4_ops5clamp4callERKNS_6TensorERKSt8optionalIN3c106ScalarEESA_");
  mangled(
      "2at4_ops4stft", 9,
      (const char *const[]){TENSOR, "l", OPT("l"), OPT("l"), OPT_TENSOR, "b", OPT("b"), OPT("b"), OPT("b")},
      "_ZN2at4_ops4stft4callERKNS_6TensorElSt8optionalIlES6_RKS5_IS2_EbS5_IbESA_SA_");
  mangled("2at4_ops10layer_norm", 6, (const char *const[]){TENSOR, SIZES, OPT_TENSOR, OPT_TENSOR, "d", "b"},
          "_ZN2at4_ops10layer_norm4callERKNS_6TensorEN3c108ArrayRefINS5_6SymIntEEERKSt8optionalIS2_ESC_db");
  mangled("2at4_ops4full", 6,
          (const char *const[]){SIZES, "RKN3c106ScalarE", OPT("N3c1010ScalarTypeE"), OPT("N3c106LayoutE"),
                                OPT("N3c106DeviceE"), OPT("b")},
          "_ZN2at4_ops4full4callEN3c108ArrayRefINS2_6SymIntEEERKNS2_6ScalarESt8optionalINS2_10ScalarTypeEES9_"
          "INS2_6LayoutEES9_INS2_6DeviceEES9_IbE");
  mangled(
      "2at4_ops18upsample_bicubic2d", 5, (const char *const[]){TENSOR, SIZES, "b", OPT("d"), OPT("d")},
      "_ZN2at4_ops18upsample_bicubic2d4callERKNS_6TensorEN3c108ArrayRefINS5_6SymIntEEEbSt8optionalIdESA_");
  mangled("2at4_ops20_linalg_check_errors", 3,
          (const char *const[]){TENSOR, "St17basic_string_viewIcSt11char_traitsIcEE", "b"},
          "_ZN2at4_ops20_linalg_check_errors4callERKNS_6TensorESt17basic_string_viewIcSt11char_traitsIcEEb");
  mangled("2at4_ops24grid_sampler_2d_backward", 7,
          (const char *const[]){TENSOR, TENSOR, TENSOR, "l", "l", "b", "St5arrayIbLm2EE"},
          "_ZN2at4_ops24grid_sampler_2d_backward4callERKNS_6TensorES4_S4_llbSt5arrayIbLm2EE");
  return test_done();
}
