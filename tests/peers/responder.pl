#!/usr/bin/perl
# A worker made with FCGI.pm, as any FastCGI program in Perl is. Each answer
# begins with its process id and how many requests it has had. QUERY_STRING:
#     crash      dies of SIGSEGV
#     environ    writes its environment, a variable a line
#     body       writes how many bytes came
#     hold=FILE  makes FILE.started.PID and answers when there is FILE
use strict;
use warnings;
use FCGI;

my %environ = %ENV;
my $count = 0;
my $request = FCGI::Request();

while ($request->Accept() >= 0) {
	my $query = $ENV{QUERY_STRING} // '';
	$count++;
	if ($query eq 'crash') {
		kill 'SEGV', $$;
	} elsif ($query =~ /^hold=(.*)/) {
		open my $mark, '>', "$1.started.$$" or die "$1: $!";
		select undef, undef, undef, 0.01 until -e $1;
	}
	print "Content-Type: text/plain\r\n\r\n$$ $count\n";
	if ($query eq 'environ') {
		print "$_=$environ{$_}\n" for sort keys %environ;
	} elsif ($query eq 'body') {
		my ($bytes, $part) = (0, '');
		while (my $n = read STDIN, $part, 65536) {
			$bytes += $n;
		}
		print "$bytes\n";
	}
	$request->Finish();
}
