// The sum of TERMS numbers term * 2^exponent, as one integer times 2^(maximum - GUARD).
//
// Every term is shifted right by its distance from the largest exponent, then integers are added.
// A shift drops what falls below 2^(maximum - GUARD), toward minus infinity: the sum is at most
// TERMS * 2^(maximum - GUARD) too small, and never too large. A term of zero must come with
// exponent zero, or its exponent would push others out of the window.

module aligned_sum #(
    parameter TERMS = 32,
    parameter WIDTH = 17,
    parameter EXPONENT = 9,
    parameter GUARD = 8
) (
    input [TERMS*WIDTH-1:0] terms,
    input [TERMS*EXPONENT-1:0] exponents,
    output signed [WIDTH+GUARD+$clog2(TERMS)-1:0] sum,
    output [EXPONENT-1:0] maximum
);
  wire [TERMS*(WIDTH+GUARD)-1:0] aligned;

  // [align]
  maximum_tree #(.TERMS(TERMS), .WIDTH(EXPONENT)) largest (
      .terms(exponents),
      .maximum(maximum)
  );

  genvar i;
  generate
    for (i = 0; i < TERMS; i = i + 1) begin : lane
      align_term #(.WIDTH(WIDTH), .EXPONENT(EXPONENT), .GUARD(GUARD)) align (
          .term(terms[i*WIDTH+:WIDTH]),
          .exponent(exponents[i*EXPONENT+:EXPONENT]),
          .maximum(maximum),
          .aligned(aligned[i*(WIDTH+GUARD)+:WIDTH+GUARD])
      );
    end
  endgenerate

  adder_tree #(.TERMS(TERMS), .WIDTH(WIDTH + GUARD)) tree (
      .terms(aligned),
      .sum(sum)
  );
  // [/align]
endmodule

module align_term #(
    parameter WIDTH = 17,
    parameter EXPONENT = 9,
    parameter GUARD = 8
) (
    input signed [WIDTH-1:0] term,
    input [EXPONENT-1:0] exponent,
    input [EXPONENT-1:0] maximum,
    output signed [WIDTH+GUARD-1:0] aligned
);
  wire [EXPONENT-1:0] distance = maximum - exponent;
  wire signed [WIDTH+GUARD-1:0] extended = {term, {GUARD{1'b0}}};
  assign aligned = extended >>> distance;
endmodule
