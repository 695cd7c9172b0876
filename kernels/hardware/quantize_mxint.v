// What MXINT asks of the side that arrives as bfloat16: the activations, quantized as they come.
//
// The block's scale is its largest exponent; every significand is shifted by its distance from that,
// rounded to nearest (ties to even) and saturated. WIDTH, which counts the sign, is at most 8: a wider
// code would hold bits that bfloat16 does not have. A block with an infinity or a NaN gets the
// scale 255, which is NaN.

module dot_mxint_quantizing #(
    parameter LANES = 32,
    parameter WIDTH = 8,
    parameter OFFSET = 266
) (
    input [LANES*WIDTH-1:0] a,
    input [LANES*16-1:0] b,
    input [7:0] a_scale,
    input [31:0] acc,
    output [31:0] result
);
  wire [LANES*WIDTH-1:0] codes;
  wire [7:0] scale;

  quantize_mxint #(.BLOCK(LANES), .WIDTH(WIDTH)) quantize (
      .values(b),
      .codes(codes),
      .scale(scale)
  );
  dot_mxint #(
      .LANES(LANES),
      .WIDTH(WIDTH),
      .SIGNS(1),
      .BLOCK(LANES),
      .GUARD(0),
      .OFFSET(OFFSET)
  ) dot (
      .a(a),
      .b(codes),
      .a_scale(a_scale),
      .b_scale(scale),
      .acc(acc),
      .result(result)
  );
endmodule

(* keep_hierarchy *)
module quantize_mxint #(
    parameter BLOCK = 32,
    parameter WIDTH = 8
) (
    input [BLOCK*16-1:0] values,
    output [BLOCK*WIDTH-1:0] codes,
    output [7:0] scale
);
  wire [BLOCK*8-1:0] fields;

  maximum_tree #(.TERMS(BLOCK), .WIDTH(8)) largest (
      .terms(fields),
      .maximum(scale)
  );

  genvar i;
  generate
    for (i = 0; i < BLOCK; i = i + 1) begin : lane
      assign fields[i*8+:8] = values[i*16+7+:8];
      quantize_element #(.WIDTH(WIDTH)) element (
          .value(values[i*16+:16]),
          .scale(scale),
          .code(codes[i*WIDTH+:WIDTH])
      );
    end
  endgenerate
endmodule

(* keep_hierarchy *)
module quantize_element #(
    parameter WIDTH = 8
) (
    input [15:0] value,
    input [7:0] scale,
    output [WIDTH-1:0] code
);
  wire normal = |value[14:7];
  wire [7:0] exponent = {value[14:8], value[7] | ~normal};
  wire [8:0] distance = scale - exponent + (9 - WIDTH);
  wire [16:0] shifted = {normal, value[6:0], 9'd0} >> distance;
  wire round_up = shifted[8] & (shifted[9] | (|shifted[7:0]));
  wire [8:0] rounded = shifted[16:9] + round_up;
  wire [WIDTH-2:0] magnitude = |rounded[8:WIDTH-1] ? {WIDTH - 1{1'b1}} : rounded[WIDTH-2:0];
  assign code = {value[15], magnitude};
endmodule
