# Completion of cotangent for fish. Commands, options and recipes are asked of the command itself.
function __cotangent_commands
    cotangent --help 2>/dev/null | string replace -rf '^  ([a-z]+) +(.*)' '$1\t$2'
end
function __cotangent_options
    set -l words (commandline -opc)
    cotangent $words[2] --help 2>/dev/null | string match -rag -- '(--[a-z][a-z0-9-]*)' | sort -u
end
function __cotangent_recipes
    cotangent train --list 2>/dev/null | string replace -r ' +' '\t'
end
complete -c cotangent -n __fish_use_subcommand -f -a '(__cotangent_commands)'
complete -c cotangent -n 'not __fish_use_subcommand; and string match -q -- "-*" (commandline -ct)' -f -a '(__cotangent_options)'
complete -c cotangent -n '__fish_seen_subcommand_from train' -a '(__cotangent_recipes)'
complete -c cotangent -n '__fish_seen_subcommand_from ops apply check' -a '(cotangent ops 2>/dev/null | string replace -r " .*" "")'
complete -c cotangent -n '__fish_seen_subcommand_from layers' -a '(cotangent layers 2>/dev/null | string replace -r " .*" "")'
