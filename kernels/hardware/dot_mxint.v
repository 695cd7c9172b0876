// MXINT on both sides: inside a block a fixed-point dot product; the scales meet once a block.
// LANES is a multiple of BLOCK. A block that is longer than the unit takes several cycles and is
// written BLOCK = LANES.

module dot_mxint #(
    parameter LANES = 32,
    parameter WIDTH = 8,
    parameter BLOCK = 32,
    parameter GUARD = 3,
    parameter OFFSET = 266
) (
    input [LANES*WIDTH-1:0] a,
    input [LANES*WIDTH-1:0] b,
    input [LANES/BLOCK*8-1:0] a_scale,
    input [LANES/BLOCK*8-1:0] b_scale,
    output [31:0] result
);
  localparam BLOCKS = LANES / BLOCK;
  localparam SUM = 2 * WIDTH + $clog2(BLOCK);
  wire [BLOCKS*SUM-1:0] sums;
  wire [BLOCKS*9-1:0] exponents;
  wire [BLOCKS-1:0] nan;

  genvar i;
  generate
    for (i = 0; i < BLOCKS; i = i + 1) begin : block
      dot_fixed #(.LANES(BLOCK), .WIDTH(WIDTH)) integers (
          .a(a[i*BLOCK*WIDTH+:BLOCK*WIDTH]),
          .b(b[i*BLOCK*WIDTH+:BLOCK*WIDTH]),
          .result(sums[i*SUM+:SUM])
      );
      add_scales scales (
          .a(a_scale[i*8+:8]),
          .b(b_scale[i*8+:8]),
          .exponent(exponents[i*9+:9]),
          .nan(nan[i])
      );
    end
  endgenerate

  combine_blocks #(.BLOCKS(BLOCKS), .WIDTH(SUM), .EXPONENT(9), .GUARD(GUARD), .OFFSET(OFFSET))
      combine (
      .sums(sums),
      .exponents(exponents),
      .nan(|nan),
      .fp32(result)
  );
endmodule
