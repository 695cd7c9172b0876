// The exact sum of TERMS numbers term * 2^exponent, for exponents of 0 … RANGE: each term is shifted
// to its place in one fixed-point number. No largest exponent is looked for, and nothing is lost.

module shifted_sum #(
    parameter TERMS = 32,
    parameter WIDTH = 2,
    parameter EXPONENT = 4,
    parameter RANGE = 12
) (
    input [TERMS*WIDTH-1:0] terms,
    input [TERMS*EXPONENT-1:0] exponents,
    output signed [WIDTH+RANGE+$clog2(TERMS)-1:0] sum
);
  wire [TERMS*(WIDTH+RANGE)-1:0] shifted;

  genvar i;
  generate
    for (i = 0; i < TERMS; i = i + 1) begin : lane
      shift_term #(.WIDTH(WIDTH), .EXPONENT(EXPONENT), .RANGE(RANGE)) shift (
          .term(terms[i*WIDTH+:WIDTH]),
          .exponent(exponents[i*EXPONENT+:EXPONENT]),
          .shifted(shifted[i*(WIDTH+RANGE)+:WIDTH+RANGE])
      );
    end
  endgenerate

  adder_tree #(.TERMS(TERMS), .WIDTH(WIDTH + RANGE)) tree (
      .terms(shifted),
      .sum(sum)
  );
endmodule

module shift_term #(
    parameter WIDTH = 2,
    parameter EXPONENT = 4,
    parameter RANGE = 12
) (
    input signed [WIDTH-1:0] term,
    input [EXPONENT-1:0] exponent,
    output signed [WIDTH+RANGE-1:0] shifted
);
  wire signed [WIDTH+RANGE-1:0] extended = term;
  assign shifted = extended << exponent;
endmodule
